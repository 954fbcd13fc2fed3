"""What the findings need of a live engine: counters a window ago, turn numbers, and a word about blocks too large."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.real_manager import admit, make_manager, make_request
from vllm_hitratio_plugin.engine.probe import cache_facts
from vllm_hitratio_plugin.engine.recorder import Recorder
from vllm_hitratio_plugin.engine.requests import turn_of
from vllm_hitratio_plugin.engine.service import Service
from vllm_hitratio_plugin.findings.rules import diagnose
from vllm_hitratio_plugin.settings import Settings
from vllm_hitratio_plugin.snapshot_json import from_json, to_json


@pytest.mark.parametrize(
    ("extra", "turn"),
    [
        ({"conversation_id": "a", "turn": 3}, 3),
        ({"turn": 0}, None),
        ({"turn": -2}, None),
        ({"turn": "3"}, None),
        ({"turn": [3]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_turn_number_is_a_whole_number_from_1(extra: Any, turn: int | None) -> None:
    assert turn_of(SimpleNamespace(sampling_params=SimpleNamespace(extra_args=extra))) == turn
    assert turn_of(SimpleNamespace(sampling_params=None)) is None


def service_of(manager: Any, **facts: Any) -> Service:
    settings = Settings.from_env({"HITRATIO_PORT": "0", "HITRATIO_WINDOW": "100"})
    known = replace(cache_facts(manager), **facts)
    return Service(manager, known, settings, model_name="tiny", engine="0")


@pytest.fixture
def service() -> Iterator[Service]:
    made = service_of(make_manager(1000))
    yield made
    made.stop()


def recorded(service: Service) -> Recorder:
    assert service._recorder is not None
    return service._recorder


@pytest.mark.vllm
def test_turns_served_elsewhere_are_counted_from_what_clients_send(service: Service) -> None:
    manager = recorded(service)._manager
    for name, path, turn in (("1", "ab", 1), ("2", "abc", 2), ("3", "abcde", 4), ("4", "abcde", 4), ("5", "xyz", 5)):
        id_ = "known" if path[0] == "a" else "stranger"
        assert admit(manager, make_request(name, path, extra={"conversation_id": id_, "turn": turn})) is not None
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    # Turn 3 of one conversation, and all but the fifth of the other; a turn sent again is none.
    assert (counters.requests, counters.follow_up_turns, counters.unmatched_turns) == (5, 4, 2)


@pytest.mark.vllm
def test_earlier_counters_are_a_window_old(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = recorded(service)._manager
    now = [time.monotonic()]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    ages = []
    for number in range(400):
        assert admit(manager, make_request(f"{number}", chr(200 + number))) is not None
        service.refresh()
        snapshot = service.snapshot
        assert snapshot.counters is not None
        if snapshot.earlier is not None:
            assert snapshot.earlier_seconds is not None
            ages.append(snapshot.earlier_seconds)
            # One prompt every 5 s.
            assert snapshot.counters.requests - snapshot.earlier.requests == pytest.approx(ages[-1] / 5, abs=0.01)
        now[0] += 5
    assert len(ages) == 399
    # As old as the window, which no reuse has stretched to its most: six times its least.
    estimate = service.snapshot.estimate
    assert estimate is not None
    assert ages[-1] == pytest.approx(estimate.window_seconds, abs=10)
    assert len(service._history._copies) <= 121
    assert replace(from_json(to_json(service.snapshot)), sums=None) == replace(service.snapshot, sums=None)


@pytest.mark.vllm
@pytest.mark.parametrize(("longest", "said"), [(16, True), (17, False), (None, False)])
def test_case_3_is_said_once_at_start_up(
    longest: int | None, said: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("vllm.hitratio"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger="vllm.hitratio"):
        service = service_of(make_manager(100), max_model_len=longest)
        for _ in range(3):
            service.refresh()
        service.stop()
    lines = [line for line in caplog.messages if "nothing can ever hit" in line]
    assert len(lines) == int(said)
    assert (diagnose(service.snapshot)[0].rule == "block-too-large") == said

"""Snapshots on their way from the engine to the API servers."""

import json
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.example_snapshots import full_snapshot, page, snapshot
from vllm_hitratio_plugin.engine.registry import register_snapshots
from vllm_hitratio_plugin.metrics.snapshot_folder import read_all, write
from vllm_hitratio_plugin.model.traffic import InterarrivalTable, LagTable, LengthTable, RunTable, TrafficSums
from vllm_hitratio_plugin.settings import SNAPSHOT_DIR
from vllm_hitratio_plugin.snapshot import Counters, Snapshot, VllmCounters
from vllm_hitratio_plugin.snapshot_json import from_json, to_json


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """A snapshot with everything, as decoded JSON."""
    found = json.loads(to_json(whole_snapshot()))
    assert isinstance(found, dict)
    return found


@cache
def whole_snapshot() -> Snapshot:
    """With sums, too, and the counters of a window ago."""
    made = full_snapshot()
    sums = TrafficSums(
        seconds=600.0,
        requests=3.0,
        runs=RunTable.of(np.array([2.5, 70.0]), np.array([4.0, 9.0])),
        interarrivals=InterarrivalTable.of(np.array([2.5, 70.0])),
        lags=LagTable.of([3.0, 1.0]),
        lengths=LengthTable.of(np.array([100.0, 3000.0])),
    )
    vllm = VllmCounters("tiny", "0", True, 16, 300, 1e6, 1e5, 3.0)
    return replace(made, sums=sums, vllm=vllm, earlier=Counters(requests=3), earlier_seconds=600.0)


@pytest.mark.parametrize("prompts", [0, 100, 2000])
def test_json_and_back(prompts: int) -> None:
    made = snapshot(prompts)
    assert from_json(to_json(made)) == made
    assert b"\n" not in to_json(made)


def test_everything_survives_json() -> None:
    made = whole_snapshot()
    read = from_json(to_json(made))
    for item in fields(Snapshot):
        if item.name != "sums":
            assert getattr(read, item.name) == getattr(made, item.name), item.name
            assert getattr(made, item.name) is not None, item.name
    assert made.sums is not None
    assert read.sums is not None
    for item in fields(TrafficSums):
        mine, theirs = getattr(made.sums, item.name), getattr(read.sums, item.name)
        if is_dataclass(mine):
            for column in fields(mine):
                assert getattr(theirs, column.name) == pytest.approx(getattr(mine, column.name), rel=1e-5), column.name
        else:
            assert theirs == mine, item.name


def test_json_without_figures() -> None:
    made = snapshot(10, counters=None, estimate=None, degraded={"hook": "why"})
    assert from_json(to_json(made)) == made


def test_strict_json_without_nan() -> None:
    json.loads(to_json(whole_snapshot()), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_unknown_fields_of_a_later_version_are_ignored(data: dict[str, Any]) -> None:
    newer = deepcopy(data)
    for part in (newer, newer["counters"], newer["estimate"], newer["sums"], newer["sums"]["runs"]):
        part["newer"] = 3
    assert to_json(from_json(json.dumps(newer))) == to_json(from_json(json.dumps(data)))


def paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in decoded JSON."""
    yield path
    for key, inside in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from paths(inside, (*path, key))


ALL_PATHS = [path for path in paths(json.loads(to_json(whole_snapshot()))) if path]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400) | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_a_broken_snapshot_is_a_value_error_or_a_snapshot(draw: st.DataObject) -> None:
    broken = json.loads(to_json(whole_snapshot()))
    for path in draw.draw(st.lists(st.sampled_from(ALL_PATHS), min_size=1, max_size=3)):
        owner = broken
        try:
            for key in path[:-1]:
                owner = owner[key]
            if draw.draw(st.booleans()):
                del owner[path[-1]]
            else:
                owner[path[-1]] = draw.draw(JSON_VALUES)
        except (LookupError, TypeError):
            continue  # a change before this one took its place away
    with suppress(ValueError):
        read = from_json(json.dumps(broken))
        # What is accepted can be shown, and written again.
        assert ('reason="collector"} 1.0' in page(read)) == ("collector" in read.degraded)
        assert to_json(from_json(to_json(read))) == to_json(read)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("capacity_blocks",), "300", "capacity_blocks"),
        (("capacity_blocks",), None, "capacity_blocks"),
        (("counters", "requests"), 2.5, "counters.requests"),
        (("counters", "outcomes"), [1, 2], "outcomes"),
        (("estimate", "outcomes"), [1, 2], "outcomes"),
        (("earlier", "interarrival_buckets"), [], "interarrival_buckets"),
        (("estimate", "curve"), {"many": 0.5}, "estimate.curve"),
        (("sums", "runs", "blocks"), ["x", "y"], "sums.runs.blocks"),
        (("sums", "runs", "blocks"), [1.0], "sums.runs"),
        (("degraded",), ["hook"], "degraded"),
    ],
)
def test_the_message_names_the_field(data: dict[str, Any], path: tuple[str, ...], value: object, field: str) -> None:
    broken = deepcopy(data)
    owner = broken
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    with pytest.raises(ValueError, match=re.escape(field)):
        from_json(json.dumps(broken))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", b"\xff", '{"model_name":' + "[" * 100_000])
def test_what_is_no_snapshot_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        from_json(text)


def test_engines_side_by_side(tmp_path: Path) -> None:
    folder = str(tmp_path / "new")
    zero, one = snapshot(100), snapshot(200, engine="1")
    write(folder, one)
    write(folder, zero)
    write(folder, zero)
    assert read_all(folder) == [zero, one]
    assert sorted(os.listdir(folder)) == ["engine-0.json", "engine-1.json"]


def test_only_the_user_may_look(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    write(str(folder), snapshot(10))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "engine-0.json").stat().st_mode) == 0o600


def test_what_can_not_be_read_is_left_out_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = snapshot(10)
    write(str(tmp_path), good)
    (tmp_path / "engine-1.json").write_text("{")
    (tmp_path / "engine-2.json").write_text('{"counters": null, "estimate": null, "surprise": 1}')
    (tmp_path / "engine-3.json").mkdir()
    (tmp_path / "other.txt").write_text("hello")
    with caplog.at_level(logging.WARNING, "vllm.hitratio"):
        assert read_all(str(tmp_path)) == [good]
        assert read_all(str(tmp_path)) == [good]
    assert sorted(re.findall(r"engine-\d", caplog.text)) == ["engine-1", "engine-2", "engine-3"]
    assert read_all(str(tmp_path / "missing")) == []


def test_a_folder_that_can_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "engine-0.json").mkdir()
    with pytest.raises(OSError, match="engine-0"):
        write(str(tmp_path), snapshot(10))
    assert os.listdir(tmp_path) == ["engine-0.json"]


def test_registering_twice_shows_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SNAPSHOT_DIR, str(tmp_path))
    registry = CollectorRegistry()
    register_snapshots(registry)
    register_snapshots(registry)
    assert generate_latest(registry).decode().count('reason="snapshot"} 1.0') == 1
    write(str(tmp_path), snapshot(300, wall_time=time.time()))
    text = generate_latest(registry).decode()
    assert text.count("\nhitratio_prompt_blocks_total{") == 1

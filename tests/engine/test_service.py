"""From the real manager to a snapshot: observed figures are the manager's own, and each part fails alone."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.support import drive as drive_vllm
from tests.support.real_manager import BLOCK_SIZE, admit, make_manager, make_request, serve
from vllm_hitratio_plugin.engine import recorder as recorders
from vllm_hitratio_plugin.engine import registry as registries
from vllm_hitratio_plugin.engine import service as services
from vllm_hitratio_plugin.engine import watch as watching
from vllm_hitratio_plugin.engine.probe import cache_facts
from vllm_hitratio_plugin.engine.registry import register_snapshots
from vllm_hitratio_plugin.engine.service import Service
from vllm_hitratio_plugin.findings.rules import diagnose
from vllm_hitratio_plugin.metrics.snapshot_folder import read_all
from vllm_hitratio_plugin.settings import SNAPSHOT_DIR, Settings
from vllm_hitratio_plugin.snapshot import OUTCOMES
from vllm_hitratio_plugin.snapshot_json import to_json

pytestmark = pytest.mark.vllm

LOGGER = "vllm.hitratio"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "snapshots")
    monkeypatch.setenv(SNAPSHOT_DIR, path)
    return path


@pytest.fixture
def manager() -> Any:
    return make_manager(60)


@pytest.fixture
def made(folder: str) -> Iterator[list[Service]]:
    services_made: list[Service] = []
    yield services_made
    for service in services_made:
        service.stop()


def service_of(manager: Any, made: list[Service], rank: int = 0, **env: str) -> Service:
    settings, _ = Settings.from_env(
        {"HITRATIO_PORT": "0", **{f"HITRATIO_{name}": value for name, value in env.items()}}
    )
    service = Service(manager, cache_facts(manager), settings, model_name="tiny", engine=str(rank), local_rank=rank)
    made.append(service)
    return service


def conversations(requests: int, seed: int = 1) -> Iterator[tuple[str, str, int]]:
    """(request id, path, tokens behind it): 25 clients whose histories grow and start over."""
    chooser = random.Random(seed)
    histories = [""] * 25
    for number in range(requests):
        client = chooser.randrange(len(histories))
        if len(histories[client]) > 12:
            histories[client] = ""
        letters = "".join(chooser.choice("abcdefgh") for _ in range(chooser.randint(1, 4)))
        histories[client] = (histories[client] or chr(1000 + client)) + letters
        yield f"{number}", histories[client], chooser.randrange(BLOCK_SIZE)


def drive(manager: Any, requests: int, seed: int = 1, most_held: int = 3) -> tuple[int, int, int]:
    """Serve with up to so many requests at a time; (hit tokens, prompt tokens, prompt blocks) as the manager says."""
    held: list[Any] = []
    hits = tokens = blocks = 0
    for name, path, tail in conversations(requests, seed):
        request = make_request(name, path, tail)
        while (hit := admit(manager, request)) is None:
            manager.free(held.pop(0))
        hits += hit
        tokens += request.num_tokens
        blocks += -(-request.num_tokens // BLOCK_SIZE)
        held.append(request)
        if len(held) > most_held:
            manager.free(held.pop(0))
    for request in held:
        manager.free(request)
    return hits, tokens, blocks


def test_observed_is_what_the_manager_returned_exactly(manager: Any, made: list[Service], folder: str) -> None:
    service = service_of(manager, made)
    hits, tokens, blocks = drive(manager, 1500)
    stats = manager.make_prefix_cache_stats()
    service.refresh()
    counters, estimate = service.snapshot.counters, service.snapshot.estimate
    assert counters is not None
    assert estimate is not None
    assert 0 < hits < tokens
    assert (counters.hit_tokens, counters.prompt_tokens, counters.prompt_blocks) == (hits, tokens, blocks)
    assert (counters.requests, counters.uncounted) == (1500, 0)
    assert (stats.hits, stats.queries) == (hits, tokens)
    assert estimate.observed == hits / BLOCK_SIZE / blocks
    assert sum(counters.outcomes) == blocks
    (read,) = read_all(folder)
    assert replace(read, sums=None) == replace(service.snapshot, sums=None)


def test_the_shadow_of_the_running_manager_is_exact(manager: Any, made: list[Service]) -> None:
    """One request at a time, no whole-block repeats: an exact LRU, so nothing is unexplained."""
    service = service_of(manager, made)
    for name, path, tail in conversations(1500):
        serve(manager, make_request(name, path, max(tail, 1)))
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    assert counters.shadow_hit_blocks == counters.hit_blocks > 500
    assert dict(zip(OUTCOMES, counters.outcomes, strict=True))["unexplained", "missing"] == 0


def test_answers_that_are_cached_are_remembered(manager: Any, made: list[Service]) -> None:
    """A prompt of 2 blocks whose answer fills 3 more: the last sampled token has no KV."""
    service = service_of(manager, made)
    request = make_request("one", "ab", tail=8, answer=60)
    admit(manager, request)
    request.append_output_token_ids([1] * 41)
    request.block_hashes = make_request("same", "abcde").block_hashes
    request.num_computed_tokens = request.num_tokens - 1
    manager.allocate_slots(request, 40)
    manager.free(request)
    hit = serve(manager, make_request("two", "abcdefg"))
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    assert hit == 5 * BLOCK_SIZE
    assert counters.ceiling_hit_blocks == 5
    assert counters.hit_tokens == hit


def test_a_request_is_counted_once(manager: Any, made: list[Service]) -> None:
    """Preempted and back, then another whose load from outside failed and which starts over."""
    service = service_of(manager, made)
    preempted = make_request("preempted", "abcd")
    admit(manager, preempted)
    manager.free(preempted)
    preempted.num_computed_tokens, preempted.num_preemptions = 0, 1
    admit(manager, preempted)
    failed = make_request("failed", "wxyz")
    admit(manager, failed, external=2 * BLOCK_SIZE)
    manager.free(failed)
    failed.num_computed_tokens = 0
    admit(manager, failed)
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    assert (counters.requests, counters.resumed) == (2, 1)
    assert counters.prompt_tokens == preempted.num_tokens + failed.num_tokens
    assert counters.hit_tokens == 0
    assert counters.external_hit_tokens == 2 * BLOCK_SIZE


def test_a_cache_outside_the_model_is_observed_without_reuses(made: list[Service]) -> None:
    manager = make_manager(60, groups=2)
    service = service_of(manager, made)
    for number in range(200):
        serve(manager, make_request(str(number), chr(1000 + number)))
    service.refresh()
    estimate = service.snapshot.estimate
    assert estimate is not None
    assert (estimate.ready, estimate.observed, estimate.reuses) == (True, 0.0, 0)


def test_a_request_that_may_not_read_the_cache_is_no_prompt(manager: Any, made: list[Service]) -> None:
    service = service_of(manager, made)
    serve(manager, make_request("one", "abcd"))
    unread = make_request("two", "abcd")
    unread.skip_reading_prefix_cache = True
    assert serve(manager, unread) == 0
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    assert (counters.requests, counters.uncounted, counters.skipped) == (1, 1, 1)
    assert manager.make_prefix_cache_stats().requests == 1


def test_case_25_requests_for_prompt_logprobs(made: list[Service]) -> None:
    """400 of vLLM's own requests; the last one comes back after a preemption, and is not counted twice."""
    managed = drive_vllm.manager(1000)
    service = service_of(managed, made)
    hasher = drive_vllm.Hasher(drive_vllm.BLOCK)
    for number in range(400):
        asked = drive_vllm.request(str(number), [7] * 320, hasher, sampling={"prompt_logprobs": 1})
        assert drive_vllm.admit(managed, asked) == 0
        managed.free(asked)
    service.refresh()
    assert [finding.rule for finding in diagnose(service.snapshot)] == ["requests-skip-cache"]
    asked.num_computed_tokens, asked.num_preemptions = 0, 1
    drive_vllm.admit(managed, asked)
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    assert (counters.requests, counters.skipped, counters.resumed) == (0, 400, 1)


@pytest.mark.parametrize("key", ["session_id", "conversation_id"])
def test_conversation_ids_link_turns_and_are_not_kept(manager: Any, made: list[Service], folder: str, key: str) -> None:
    service = service_of(manager, made)
    for number, path in enumerate(["ab", "cd", "ef"]):
        serve(manager, make_request(str(number), path, extra={key: "Alice's talk"}))
    serve(manager, make_request("other", "gh", extra={key: "Bob's"}))
    serve(manager, make_request("none", "ij"))
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    assert counters.conversations == 3
    assert "Alice" not in to_json(service.snapshot).decode()
    assert "Alice" not in repr(list(service._monitor._admissions._named._by_id))


@pytest.mark.parametrize("name", ["", None, ["a"], {"a": 1}, "\ud800", 7, 1.5])
def test_any_conversation_id_at_all(manager: Any, made: list[Service], name: object) -> None:
    service = service_of(manager, made)
    serve(manager, make_request("one", "ab", extra={"session_id": name}))
    service.refresh()
    assert service.snapshot.degraded == {}
    assert service.snapshot.counters is not None
    assert service.snapshot.counters.requests == 1


def test_a_reset_is_published(manager: Any, made: list[Service]) -> None:
    service = service_of(manager, made)
    serve(manager, make_request("one", "abcd"))
    assert manager.reset_prefix_cache()
    assert serve(manager, make_request("two", "abcd")) == 0
    service.refresh()
    snapshot = service.snapshot
    assert snapshot.counters is not None
    assert snapshot.counters.resets == 1
    assert snapshot.last_reset == pytest.approx(time.time(), abs=30)
    assert dict(zip(OUTCOMES, snapshot.counters.outcomes, strict=True))["unexplained", "reset"] == 4


def test_a_release_of_an_unknown_request_is_nothing(manager: Any, made: list[Service]) -> None:
    service = service_of(manager, made)
    manager.free(make_request("never admitted", "abcd"))
    service.refresh()
    assert service.snapshot.degraded == {}


def test_nothing_is_kept_of_requests_that_are_over(manager: Any, made: list[Service]) -> None:
    import gc
    import weakref

    service = service_of(manager, made)
    request = make_request("one", "abcd")
    serve(manager, request)
    seen = weakref.ref(request)
    del request
    service.refresh()
    gc.collect()
    assert seen() is None


def test_prefix_caching_off_is_said_and_not_measured(made: list[Service], caplog: pytest.LogCaptureFixture) -> None:
    manager = make_manager(30, caching=False)
    with caplog.at_level(logging.WARNING, LOGGER):
        service = service_of(manager, made)
    assert "allocate_slots" not in vars(manager)
    service.refresh()
    assert list(service.snapshot.degraded) == ["prefix_caching_off"]
    assert (service.snapshot.counters, service.snapshot.estimate) == (None, None)
    assert len(caplog.records) == 1


# Each part fails alone: one log line, one reason, requests as before


def run_with_fault(service: Service, manager: Any, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        for seed in range(4):
            hits, _, _ = drive(manager, 200, seed)
            assert hits > 0
            service.refresh()
    assert list(service.snapshot.degraded) == [reason]
    assert service.snapshot.degraded[reason].count("\n") == 0
    assert len(caplog.records) == 1
    service.refresh()
    assert list(service.snapshot.degraded) == [reason]


def wait_for(seen: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def started(service: Service) -> None:
    """Its thread has published for the first time."""
    before = service.snapshot
    service.start()
    wait_for(lambda: service.snapshot is not before)


def fail(*_: object, **__: object) -> Any:
    raise RuntimeError("on purpose")


def test_the_hook_fails(
    manager: Any, made: list[Service], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        monotonic = staticmethod(fail)

    monkeypatch.setattr(recorders, "time", Clock)
    service = service_of(manager, made)
    run_with_fault(service, manager, caplog, "hook")
    assert (service.snapshot.counters, service.snapshot.estimate) == (None, None)
    assert "allocate_slots" not in vars(manager)


def test_the_tree_fails(
    manager: Any, made: list[Service], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_hitratio_plugin.index.prefix_tree import PrefixTree

    monkeypatch.setattr(PrefixTree, "look_up", fail)
    service = service_of(manager, made)
    run_with_fault(service, manager, caplog, "workload")
    for _ in range(20):
        service.drain()
    service.refresh()
    # Given up for good: nothing of ours is left on the manager, and no zeros are shown.
    assert "allocate_slots" not in vars(manager)
    assert (service.snapshot.counters, service.snapshot.estimate) == (None, None)


def test_the_tree_fails_once_and_the_estimate_starts_anew(
    manager: Any, made: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_hitratio_plugin.index.prefix_tree import PrefixTree

    service = service_of(manager, made)
    drive(manager, 50)
    with monkeypatch.context() as broken:
        broken.setattr(PrefixTree, "look_up", fail)
        service.drain()
    service.drain()
    drive(manager, 100, seed=2)
    service.refresh()
    assert "workload" in service.snapshot.degraded
    assert service.snapshot.counters is not None
    # The one record it failed on is lost with what came before, the rest is counted.
    assert 100 <= service.snapshot.counters.requests < 150


def test_the_fit_fails(
    manager: Any, made: list[Service], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_hitratio_plugin.monitor import Monitor

    monkeypatch.setattr(Monitor, "refresh", fail)
    service = service_of(manager, made)
    run_with_fault(service, manager, caplog, "fit")
    assert (service.snapshot.counters, service.snapshot.estimate, service.snapshot.fit_time) == (None, None, None)


def test_the_fit_fails_later_and_the_last_one_stays_with_its_time(
    manager: Any, made: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_hitratio_plugin.monitor import Monitor

    service = service_of(manager, made)
    drive(manager, 300)
    service.refresh()
    before = service.snapshot
    monkeypatch.setattr(Monitor, "refresh", fail)
    service.refresh()
    assert service.snapshot.estimate == before.estimate
    assert service.snapshot.fit_time == before.fit_time
    assert service.snapshot.wall_time > before.wall_time
    assert "fit" in service.snapshot.degraded


def test_the_snapshot_fails(
    manager: Any, made: list[Service], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_hitratio_plugin.metrics.snapshot_folder.write", fail)
    service = service_of(manager, made)
    run_with_fault(service, manager, caplog, "snapshot")
    assert service.snapshot.counters is not None
    assert service.snapshot.counters.requests == 800


def test_the_exporter_fails(
    manager: Any, made: list[Service], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "Exporter", fail)
    service = service_of(manager, made, PORT="9577")
    with caplog.at_level(logging.INFO, LOGGER):
        started(service)
    assert list(service.snapshot.degraded) == ["exporter"]
    run_with_fault(service, manager, caplog, "exporter")
    assert service.snapshot.counters is not None


def test_case_28_the_second_engine_of_a_node_takes_the_next_free_port(
    manager: Any, made: list[Service], folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two servers of two ranks each, all with the same settings: their ports overlap."""
    with caplog.at_level(logging.INFO, LOGGER):
        port = free_ports(4)
        for rank in (0, 1, 0, 1):
            service = service_of(make_manager(60), made, rank, PORT=str(port))
            started(service)
    assert [service.snapshot.exporter for service in made] == [f"http://127.0.0.1:{port + more}" for more in range(4)]
    assert all(service.snapshot.degraded == {} for service in made)
    for service in made:
        with urllib.request.urlopen(f"{service.snapshot.exporter}/metrics", timeout=10) as answer:
            assert f'url="{service.snapshot.exporter}"' in answer.read().decode()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines[1] == ("INFO", f"hitratio: metrics at http://127.0.0.1:{port + 1}/metrics")
    assert lines[2] == ("INFO", f"hitratio: metrics at http://127.0.0.1:{port + 2}/metrics (port {port} is in use)")


def test_without_an_exporter_it_is_degraded_only_while_no_api_server_shows_it(
    manager: Any, made: list[Service], folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    # An address of a network that is documentation only, so of no machine.
    service = service_of(manager, made, PORT="9577", HOST="192.0.2.1", INTERVAL="0.5")
    with caplog.at_level(logging.INFO, LOGGER):
        started(service)
        assert service.snapshot.degraded["exporter"].startswith("no exporter on 192.0.2.1:9577: ")
        registry = CollectorRegistry()
        register_snapshots(registry)
        wait_for(lambda: service.snapshot.degraded == {})
        wait_for(lambda: 'reason="exporter"} 0.0' in generate_latest(registry).decode())
    assert service.snapshot.exporter is None
    assert len(caplog.records) == 1


def test_case_35_neither_exporter_nor_snapshots(
    manager: Any, made: list[Service], folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The API server knows that the plugin is on, and says so on its own page."""
    Path(folder).write_text("in the way")
    service = service_of(manager, made, PORT="9577", HOST="192.0.2.1", INTERVAL="0.5")
    registry = CollectorRegistry()
    with caplog.at_level(logging.INFO, LOGGER):
        started(service)
        for _ in range(2):
            register_snapshots(CollectorRegistry())
    register_snapshots(registry)
    wait_for(lambda: list(service.snapshot.degraded) == ["exporter", "snapshot"])
    page = generate_latest(registry).decode()
    assert 'hitratio_degraded{engine="",model_name="",reason="snapshot"} 1.0' in page
    assert sum("the folder of snapshots can't be used" in record.getMessage() for record in caplog.records) == 1
    os.unlink(folder)
    wait_for(lambda: "snapshot" not in service.snapshot.degraded)
    wait_for(
        lambda: 'hitratio_capacity_blocks{engine="0",model_name="tiny"} 60.0' in generate_latest(registry).decode()
    )


# Engines come and go


@pytest.fixture
def four(made: list[Service], monkeypatch: pytest.MonkeyPatch, folder: str) -> Callable[[], set[str]]:
    """Four data-parallel engines, and the engines that their API server shows."""
    monkeypatch.setenv("HITRATIO_INTERVAL", "0.5")
    registry = CollectorRegistry()
    register_snapshots(registry)
    for rank in range(4):
        started(service_of(make_manager(60), made, rank, INTERVAL="0.5"))
    return lambda: set(re.findall(r'hitratio_requests_total\{engine="(\d)"', generate_latest(registry).decode()))


def test_case_27_engines_that_ended_go(four: Callable[[], set[str]], made: list[Service]) -> None:
    wait_for(lambda: four() == {"0", "1", "2", "3"})
    for service in made[2:]:
        service.stop()
    assert four() == {"0", "1"}
    again = service_of(make_manager(60), made, 2, INTERVAL="0.5")
    started(again)
    wait_for(lambda: four() == {"0", "1", "2"})


def test_an_engine_that_is_killed_or_hangs_goes_and_comes_back(
    four: Callable[[], set[str]], made: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "_LEAST_S", 1.0)
    registry = CollectorRegistry()
    register_snapshots(registry)

    def shown() -> str:
        return generate_latest(registry).decode()

    with made[3]._lock:
        wait_for(lambda: 'engine="3"' not in shown())
        assert all(f'engine="{rank}"' in shown() for rank in range(3))
    wait_for(lambda: 'engine="3"' in shown())


def test_an_engine_process_takes_its_snapshot_with_it(folder: str) -> None:
    """In a child of multiprocessing, as vLLM's engines are: it leaves without exit handlers."""
    child = multiprocessing.get_context("spawn").Process(target=engine_process, args=(folder,))
    child.start()
    wait_for(lambda: os.path.exists(f"{folder}/engine-0.json"), 60)
    Path(folder, "end").touch()
    child.join(60)
    assert child.exitcode == 0
    assert os.listdir(folder) == ["end"]


def engine_process(folder: str) -> None:
    os.environ[SNAPSHOT_DIR] = folder
    service_of(make_manager(60), []).start()
    wait_for(lambda: os.path.exists(f"{folder}/end"), 60)


def free_ports(number: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(42000, 60000, number):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + number):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no free ports")


def test_an_overflow_is_said_and_the_estimate_starts_anew(
    manager: Any, made: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "QUEUE_LIMIT", 64)
    service = service_of(manager, made)
    drive(manager, 200)
    service.refresh()
    assert "overflow" in service.snapshot.degraded
    assert service.snapshot.counters is not None
    assert service.snapshot.counters.requests <= 64


# The thread


def test_the_thread_publishes_by_itself(manager: Any, made: list[Service], folder: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    service = service_of(manager, made, PORT=str(port), INTERVAL="0.5", WINDOW="10")
    service.start()
    hits, tokens, _ = drive(manager, 400)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        shown = read_all(folder)
        if shown and shown[0].counters is not None and shown[0].counters.requests == 400:
            break
        time.sleep(0.1)
    (snapshot,) = read_all(folder)
    assert snapshot.counters is not None
    assert (snapshot.counters.hit_tokens, snapshot.counters.prompt_tokens) == (hits, tokens)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert f'hitratio_hit_tokens_total{{engine="0",model_name="tiny"}} {float(hits)}' in answer.read().decode()
    service.stop()
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("hitratio") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "threads of ours are left"
        time.sleep(0.05)


def test_a_start_that_fails_leaves_the_manager_alone(
    manager: Any, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    from types import SimpleNamespace

    scheduler = SimpleNamespace(
        kv_cache_manager=manager,
        vllm_config=SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_index=3, data_parallel_rank_local=1),
            model_config=SimpleNamespace(served_model_name=["tiny", "alias"]),
        ),
    )
    monkeypatch.setenv("HITRATIO_PORT", "0")
    with monkeypatch.context() as broken:
        broken.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="on purpose"):
            watching.watch(scheduler)
    assert "allocate_slots" not in vars(manager)


def test_a_scheduler_is_watched_once_and_named_as_vllm_names_it(
    manager: Any, monkeypatch: pytest.MonkeyPatch, folder: str, made: list[Service]
) -> None:
    from types import SimpleNamespace

    scheduler = SimpleNamespace(
        kv_cache_manager=manager,
        vllm_config=SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_index=3, data_parallel_rank_local=1),
            model_config=SimpleNamespace(served_model_name=["tiny", "alias"]),
        ),
    )
    monkeypatch.setenv("HITRATIO_PORT", "0")
    service = watching.watch(scheduler)
    assert service is not None
    made.append(service)
    assert watching.watch(scheduler) is None
    assert (service.snapshot.model_name, service.snapshot.engine) == ("tiny", "3")
    wait_for(lambda: os.path.isdir(folder) and os.listdir(folder) == ["engine-3.json"])


def test_bad_settings_are_said_and_the_defaults_used(
    manager: Any, monkeypatch: pytest.MonkeyPatch, folder: str, made: list[Service], caplog: pytest.LogCaptureFixture
) -> None:
    from types import SimpleNamespace

    scheduler = SimpleNamespace(
        kv_cache_manager=manager,
        vllm_config=SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_rank=0),
            model_config=SimpleNamespace(served_model_name="tiny"),
        ),
    )
    monkeypatch.setattr(
        services, "Exporter", lambda *_: SimpleNamespace(close=lambda: None, url="http://127.0.0.1:9577")
    )
    monkeypatch.setenv("HITRATIO_TARGET", "1.7")
    service = watching.watch(scheduler)
    assert service is not None
    made.append(service)
    assert service.snapshot.degraded["settings"].startswith("HITRATIO_TARGET: '1.7' is not a hit ratio")
    assert service.snapshot.engine == "0"

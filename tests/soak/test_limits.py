"""What no load may do to an engine: memory stays in its bounds, clocks may jump, a thread may hang, prompts be huge."""

from __future__ import annotations

import gc
import random
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import compatibility, drive
from tests.support.engines import ALL_ENGINES
from vllm_hitratio_plugin.engine.probe import cache_facts
from vllm_hitratio_plugin.engine.recorder import QUEUE_LIMIT
from vllm_hitratio_plugin.engine.service import Service
from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.metrics.snapshot_folder import read_all
from vllm_hitratio_plugin.settings import SNAPSHOT_DIR, Settings
from vllm_hitratio_plugin.snapshot_json import to_json

pytestmark = pytest.mark.vllm


def watched(manager: Any, **settings: Any) -> Service:
    values = asdict(Settings.from_env({})[0]) | {"port": 0} | settings
    return Service(manager, cache_facts(manager), Settings(**values), model_name="tiny", engine="0")


def page(service: Service) -> dict[str, float]:
    """The metrics by name, as Prometheus would parse them; labels are left out."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: [service.snapshot]))
    text = generate_latest(registry).decode()
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


def degraded(service: Service) -> set[str]:
    """The reasons that the page gives."""
    families = SnapshotCollector(lambda: [service.snapshot]).collect()
    (family,) = [family for family in families if family.name == "hitratio_degraded"]
    return {sample.labels["reason"] for sample in family.samples if sample.value}


class Prompts:
    """Cheap real requests: made-up block ids instead of hashed tokens."""

    def __init__(self) -> None:
        self._template = drive.request("template", [0], drive.Hasher(drive.BLOCK))
        self.sent = 0

    def __call__(self, blocks: list[bytes], name: str | None = None) -> Any:
        request = object.__new__(type(self._template))
        request.__dict__.update(self._template.__dict__)
        self.sent += 1
        length = len(blocks) * drive.BLOCK + 5
        request.request_id = f"r{self.sent}"
        request.prompt_token_ids = request._all_token_ids = range(length)
        request.num_prompt_tokens = length
        request.block_hashes = blocks
        request.num_computed_tokens = 0
        request.session_id = name
        return request


def fresh(number: int, blocks: int = 3) -> list[bytes]:
    return [number.to_bytes(16, "big") + block.to_bytes(16, "big") for block in range(blocks)]


def conversations(manager: Any, service: Service, prompts: Prompts, first: int, last: int) -> None:
    for number in range(first, last):
        request = prompts(fresh(number), f"conversation-{number}")
        assert drive.admit(manager, request) == 0
        manager.free(request)
        if number % 1000 == 0:
            service.drain()
        if number % 20000 == 0:
            service.refresh()
    service.refresh()


@pytest.mark.timeout(1500)
@pytest.mark.slow
def test_memory_is_flat_after_a_million_conversations() -> None:
    """The index is full after a few thousand, the list of named ones after 65,536; from then on nothing grows."""
    full, total = (200_000, 1_000_000) if ALL_ENGINES else (120_000, 150_000)
    manager = drive.manager(1000)
    service = watched(manager)
    prompts = Prompts()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        conversations(manager, service, prompts, 0, full)
        gc.collect()
        at_full = tracemalloc.get_traced_memory()[0]
        conversations(manager, service, prompts, full, total)
        gc.collect()
        at_end = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counters = service.snapshot.counters
    assert counters is not None
    assert (counters.requests, counters.conversations) == (total, total)
    assert service.snapshot.degraded == {}
    print(f"{at_full - before} bytes with a full index, {at_end - at_full} more after {total - full} more")
    assert at_end - at_full < 1 << 20
    # What is stated: the index's own figure, 300 bytes for each of 65,536 named ones; the rest is window and queue.
    index = service.snapshot.index_bytes
    assert index is not None
    assert service.snapshot.index_blocks is not None
    assert service.snapshot.index_blocks <= 8 * 1000
    assert at_end - before < index + 65_536 * 400 + (16 << 20)
    compatibility.record(
        "limits",
        f"{total:,} conversations, each with an id",
        what_was_seen=f"{(at_full - before) / 2**20:.1f} MiB once the index (8,000 blocks) and the ids (65,536) are "
        f"full, {(at_end - at_full) / 2**20:+.2f} MiB over the {total - full:,} conversations after that",
    )


@pytest.mark.parametrize("block_size", [16, 128])
def test_prompts_of_a_million_tokens(block_size: int) -> None:
    length = 1_000_000
    blocks = -(-length // block_size)
    manager = drive.manager(2 * blocks + 100, block_size)
    service = watched(manager)
    hasher = drive.Hasher(block_size)
    rng = random.Random(2)
    tokens = rng.choices(range(256), k=length)
    hits = []
    drains = []
    for name, prompt in (("a", tokens), ("b", tokens), ("c", [*tokens[: length // 2], *reversed(tokens)])):
        request = drive.request(name, prompt[:length], hasher)
        hits.append(drive.admit(manager, request))
        manager.free(request)
        began = time.thread_time()
        service.drain()
        drains.append(time.thread_time() - began)
    expected = [0, (length - 1) // block_size * block_size, length // 2 // block_size * block_size]
    assert hits == expected
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    assert counters.hit_tokens == sum(expected)
    assert counters.ceiling_hit_blocks * block_size == sum(expected)
    assert service.snapshot.degraded == {}
    assert page(service)["hitratio_requests_total"] == 3
    # Not in proportion to the prompt where it is known: a run is settled by one comparison.
    print(f"{block_size}: {[round(seconds * 1000, 1) for seconds in drains]} ms a record pair")
    assert max(drains) < 2
    compatibility.record(
        "limits",
        f"prompts of 1,000,000 tokens, {blocks:,} blocks of {block_size}",
        what_was_seen=f"hits exact; in the thread {drains[0] * 1000:.1f} ms for a new one, {drains[1] * 1000:.1f} ms "
        f"for one that is known, {drains[2] * 1000:.1f} ms for one that forks in its middle",
    )


def test_a_thread_that_hangs_costs_the_records_and_nothing_else() -> None:
    """The queue is not read: serving goes on, the queue is bounded; then the loss is said and counting starts again."""
    manager = drive.manager(1000)
    service = watched(manager)
    prompts = Prompts()
    recorder = service._recorder
    assert recorder is not None
    with service._lock:  # the worker stands still inside
        for number in range(QUEUE_LIMIT):
            request = prompts(fresh(number % 100))
            assert drive.admit(manager, request) is not None
            manager.free(request)
            assert len(recorder.queue) <= QUEUE_LIMIT
    service.refresh()
    assert "dropped" in service.snapshot.degraded["overflow"]
    assert degraded(service) == {"overflow"}
    before = service.snapshot.counters
    assert before is not None
    assert before.requests <= QUEUE_LIMIT // 2
    request = prompts(fresh(3))
    assert drive.admit(manager, request) == 3 * drive.BLOCK
    manager.free(request)
    service.refresh()
    after = service.snapshot.counters
    assert after is not None
    assert after.requests == before.requests + 1
    compatibility.record(
        "limits",
        "a thread that stands still",
        what_was_seen=f"at most {QUEUE_LIMIT:,} records wait; then the loss is said and counting starts again",
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Clocks that jump when told to."""
    ahead = {"time": 0.0, "monotonic": 0.0}
    for name in ahead:
        real = getattr(time, name)
        monkeypatch.setattr(time, name, lambda name=name, real=real: real() + ahead[name])
    return ahead


@pytest.mark.parametrize("name", ["time", "monotonic"])
@pytest.mark.parametrize("jump", [-3600.0, 3600.0, -1e9])
def test_clocks_may_jump(clock: dict[str, float], name: str, jump: float) -> None:
    manager = drive.manager(1000)
    service = watched(manager)
    prompts = Prompts()
    for number in range(600):
        if number == 300:
            service.refresh()
            clock[name] += jump
        request = prompts(fresh(number % 60))
        drive.admit(manager, request)
        manager.free(request)
    service.refresh()
    service.refresh()
    counters, estimate = service.snapshot.counters, service.snapshot.estimate
    assert counters is not None
    assert estimate is not None
    assert counters.requests == 600
    assert counters.hit_blocks == counters.ceiling_hit_blocks == 540 * 3
    assert counters.interarrival_seconds >= 0
    assert service.snapshot.degraded == {}
    shown = page(service)
    assert shown["hitratio_requests_total"] == 600
    for ratio in ("hitratio_observed_ratio", "hitratio_predicted_ratio", "hitratio_infinite_cache_ratio"):
        assert 0 <= shown.get(ratio, 0) <= 1
    assert all(value == value for value in shown.values())
    compatibility.record(
        "limits",
        "either clock steps by an hour, forward or back, or by 30 years back",
        what_was_seen="every prompt counted, hits exact, every ratio between 0 and 1",
    )


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 64 kB for the snapshots."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], capture_output=True)
    if done.returncode:
        pytest.skip("file systems can't be mounted here")
    monkeypatch.setenv(SNAPSHOT_DIR, str(tmp_path))
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_disk_that_is_full(small_disk: Path) -> None:
    """What was written last stays whole; nothing is lost but its being up to date."""
    manager = drive.manager(1000)
    service = watched(manager)
    prompts = Prompts()

    def serve(count: int) -> None:
        for number in range(count):
            request = prompts(fresh(number))
            assert drive.admit(manager, request) is not None
            manager.free(request)
        service.refresh()

    def written() -> int:
        (snapshot,) = read_all(str(small_disk))
        assert snapshot.counters is not None
        return snapshot.counters.requests

    serve(300)
    assert written() == 300
    filling = small_disk / "filling"
    with pytest.raises(OSError, match="No space left"):
        filling.write_bytes(bytes(100_000))
    serve(100)
    assert "snapshot" in service.snapshot.degraded
    assert page(service)["hitratio_requests_total"] == 400
    assert written() == 300
    assert sorted(path.name for path in small_disk.iterdir()) == ["engine-0.json", "filling"]
    filling.unlink()
    serve(100)
    assert written() == 500
    compatibility.record(
        "limits",
        "the disk of the snapshots is full",
        what_was_seen="said; the exporter goes on, vLLM's page keeps what was written last; up to date again with room",
    )


def test_errors_are_told_without_what_they_hold(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure deep inside may carry a block's hash as its text; neither the log nor the page may."""
    from vllm_hitratio_plugin.index.prefix_tree import PrefixTree

    def fail(tree: PrefixTree, blocks: list[bytes], *_: object) -> None:
        raise KeyError(blocks[0])

    monkeypatch.setattr(PrefixTree, "look_up", fail)
    manager = drive.manager(100)
    service = watched(manager)
    request = Prompts()([b"the-hash-of-a-block-of-a-prompt!"] * 3)
    with caplog.at_level("DEBUG"):
        drive.admit(manager, request)
        service.refresh()
    words = service.snapshot.degraded["workload"]
    assert "KeyError in test_limits.py" in words
    for said in (words, caplog.text, to_json(service.snapshot).decode()):
        assert "the-hash" not in said
        assert b"the-hash".hex() not in said

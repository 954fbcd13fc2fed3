"""Snapshots of a real monitor that saw an hour of made-up traffic."""

import random
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.snapshot import Snapshot


def snapshot(prompts: int = 2000, target: float | None = 0.3, engine: str = "0", **fields: Any) -> Snapshot:
    """What a service would publish after that many prompts, 1 a second."""
    monitor = Monitor(block_size=16, capacity_blocks=300, target=target)
    chooser = random.Random(3)
    histories: list[list[str]] = [[] for _ in range(60)]
    for number in range(prompts):
        client = chooser.randrange(len(histories))
        if len(histories[client]) > 40:
            histories[client] = []
        for _ in range(chooser.randint(1, 8)):
            histories[client].append(f"{client}-{number}-{len(histories[client])}")
        tokens = len(histories[client]) * 16 + 5
        monitor.admit(Access(number, number, tokens, list(histories[client]), 16 * (number % 3 == 0), 0, 4))
        monitor.release(number + 0.5, number)
    estimate = monitor.refresh(prompts)
    values: dict[str, object] = {
        "model_name": "tiny",
        "engine": engine,
        "version": "0.1.0",
        "vllm_version": "0.32.0",
        "unhashed": "head",
        "wall_time": 1.7e9,
        "capacity_blocks": 300,
        "block_size": 16,
        "block_bytes": 4096,
        "modelled": True,
        "counters": monitor.counters,
        "estimate": estimate,
        "fit_time": 1.7e9,
        "fit_seconds": 0.01,
        "index_blocks": monitor.index_blocks,
        "index_bytes": monitor.index_bytes,
        "last_reset": 1.6e9,
    }
    return Snapshot(**(values | fields))  # type: ignore[arg-type]


def full_snapshot() -> Snapshot:
    """A snapshot in which every field that a page can show has a value of its own."""
    made = snapshot(max_model_len=4096, match_unit=8, exporter="http://127.0.0.1:9577", degraded={"hook": "some words"})
    assert made.counters is not None
    assert made.estimate is not None
    counters = replace(
        made.counters,
        external_hit_tokens=11,
        short_prompts=5,
        forks=34,
        fork_depths={2: 30, 16: 4},
        follow_up_turns=7,
        unmatched_turns=3,
        skipped=6,
        resumed=2,
        resets=1,
        unreused_history_blocks=9,
    )
    contributions = {"arrival_rate": -0.08, "conversation_size": 0.01, "reuse_times": -0.02, "reusable_share": 0.0}
    estimate = replace(
        made.estimate,
        recommended_blocks=580.0,
        drift_contributions=contributions,
        drift_significant=["arrival_rate", "reuse_times"],
    )
    half: dict[str, Any] = {name: value // 2 for name, value in vars(made.counters).items() if isinstance(value, int)}
    earlier = replace(made.counters, **half)
    return replace(made, counters=counters, estimate=estimate, earlier=earlier, earlier_seconds=630.0)


def page(*snapshots: Snapshot) -> str:
    """Their page of metrics, as an exporter writes it."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: snapshots))
    return generate_latest(registry).decode()

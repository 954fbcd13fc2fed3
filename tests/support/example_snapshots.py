"""Snapshots of a real monitor that saw an hour of made-up traffic."""

import random

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.snapshot import Snapshot


def snapshot(prompts: int = 2000, target: float | None = 0.3, engine: str = "0", **fields: object) -> Snapshot:
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

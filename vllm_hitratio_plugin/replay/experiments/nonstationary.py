"""Traffic that moves: what sliding windows predict, against what was hit in them."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.replay.arrivals import Arrivals, burst, diurnal, poisson, ramp
from vllm_hitratio_plugin.replay.comparison import PoolKind, make_pool
from vllm_hitratio_plugin.replay.experiments.paper import BLOCK_SIZE, CAPACITY_BLOCKS
from vllm_hitratio_plugin.replay.generator import Traffic, draw_conversations, generate
from vllm_hitratio_plugin.replay.law import Law, exponential
from vllm_hitratio_plugin.replay.pools.pool import Unhashed
from vllm_hitratio_plugin.replay.simulate import simulate
from vllm_hitratio_plugin.replay.turns import Turns
from vllm_hitratio_plugin.snapshot import Estimate

MEAN_INTERARRIVAL = 135.0

SCENARIOS: dict[str, Arrivals] = {
    "stationary": poisson(1.5),
    "ramp": ramp(2.1, 0.3, 3000, 1020),
    "diurnal": diurnal(1.5, 4, 3600),
    "burst": burst(1, 4, 1800, 300),
}
"""A constant rate, a fall to a seventh within 17 minutes, a wave whose peak is four times its trough, and five minutes
of four times the traffic in every half hour."""

WINDOWS = (300.0, 600.0, 1200.0)
"""Lengths of the sliding windows, seconds."""

CONVERSATIONS = 12_000
_WARMUP = 600.0  # seconds
_SLOT_SECONDS = 20.0
_ESTIMATES_PER_WINDOW = 4
_CONFIDENCE = 1.96


@dataclass(frozen=True)
class WindowedRun:
    """One kind of traffic, estimated in sliding windows of one length."""

    scenario: str
    arrivals: str
    window_seconds: float
    seed: int
    estimates: Sequence[Estimate]
    """Four per window length; only those that gave a figure."""

    @property
    def errors(self) -> list[float]:
        """Predicted minus observed hit ratio of each estimate."""
        return [-estimate.divergence for estimate in self.estimates if estimate.divergence is not None]

    @property
    def mean_absolute_error(self) -> float:
        """Mean of |predicted - observed|."""
        return float(np.mean(np.abs(self.errors)))

    @property
    def largest_error(self) -> float:
        """Largest |predicted - observed|."""
        return float(np.max(np.abs(self.errors)))

    @property
    def coverage(self) -> float:
        """Share of windows whose 95 % interval of the difference covers 0."""
        covered = [
            abs(estimate.divergence) <= _CONFIDENCE * estimate.divergence_stderr
            for estimate in self.estimates
            if estimate.divergence is not None and estimate.divergence_stderr is not None
        ]
        return float(np.mean(covered))


class _Windows:
    """Monitors with windows of several lengths over one simulation, each asked for an estimate at regular times."""

    def __init__(self, windows: Sequence[float], unhashed: Unhashed) -> None:
        self.estimates: list[list[Estimate]] = [[] for _ in windows]
        self._monitors = [_monitor(seconds, unhashed) for seconds in windows]
        self._every = [seconds / _ESTIMATES_PER_WINDOW for seconds in windows]
        self._next = [_WARMUP + seconds for seconds in windows]

    def admit(self, access: Access) -> None:
        """Pass an admission on, after the estimates that are due."""
        for index, monitor in enumerate(self._monitors):
            while access.time >= self._next[index]:
                estimate = monitor.refresh(self._next[index])
                if estimate.divergence is not None:
                    self.estimates[index].append(estimate)
                self._next[index] += self._every[index]
            monitor.admit(access)

    def release(self, time: float, key: Hashable) -> None:
        """Pass a release on."""
        for monitor in self._monitors:
            monitor.release(time, key)


def run(
    scenario: str,
    seed: int,
    *,
    windows: Sequence[float] = WINDOWS,
    conversations: Sequence[Turns] | None = None,
    pool: PoolKind = "builtin",
    unhashed: Unhashed = "tail",
    service: Law | None = None,
    count: int = CONVERSATIONS,
) -> list[WindowedRun]:
    """Put one of ``SCENARIOS`` through the pool, observed by a monitor for each length of ``windows``.

    ``conversations`` are turn lengths to draw from, None for the ShareGPT-like law. ``ValueError`` where no window held
    enough for a figure.
    """
    arrivals = SCENARIOS[scenario]
    generated = generate(
        draw_conversations(conversations, count, seed),
        Traffic(arrivals, exponential(MEAN_INTERARRIVAL)),
        block_size=BLOCK_SIZE,
        seed=seed,
    )
    observer = _Windows(windows, unhashed)
    simulate(
        generated.trace,
        make_pool(pool, CAPACITY_BLOCKS, BLOCK_SIZE, unhashed),
        capacity_blocks=CAPACITY_BLOCKS,
        observer=observer,
        service=service,
        seed=seed,
    )
    for seconds, estimates in zip(windows, observer.estimates, strict=True):
        if not estimates:
            raise ValueError(f"{count} conversations are too few for windows of {seconds:g} s")
    return [
        WindowedRun(scenario, arrivals.name, seconds, seed, estimates)
        for seconds, estimates in zip(windows, observer.estimates, strict=True)
    ]


def _monitor(window_seconds: float, unhashed: Unhashed) -> Monitor:
    return Monitor(
        block_size=BLOCK_SIZE,
        capacity_blocks=CAPACITY_BLOCKS,
        unhashed=unhashed,
        window_seconds=window_seconds,
        slots=math.ceil(window_seconds / _SLOT_SECONDS),
        grid=(),
    )

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
from vllm_hitratio_plugin.replay.simulate import Observer, simulate
from vllm_hitratio_plugin.replay.turns import Turns
from vllm_hitratio_plugin.snapshot import Estimate

MEAN_GAP = 135.0

SCENARIOS: dict[str, Arrivals] = {
    "stationary": poisson(1.5),
    "ramp": ramp(2.1, 0.3, 3000, 1020),
    "diurnal": diurnal(1.5, 4, 3600),
    "burst": burst(1, 4, 1800, 300),
}
"""A constant rate, a fall to a seventh within 17 minutes, a wave whose top is four times its bottom, and five minutes
of four times the traffic in every half hour."""

WINDOWS = (300.0, 600.0, 1200.0)
"""Lengths of the sliding windows, seconds."""

CONVERSATIONS = 12_000
_WARMUP = 600.0  # seconds
_SLOT_SECONDS = 20.0
_LOOKS_A_WINDOW = 4
_CONFIDENCE = 1.96


@dataclass(frozen=True)
class Outcome:
    """One kind of traffic seen through windows of one length."""

    scenario: str
    arrivals: str
    window_seconds: float
    seed: int
    estimates: Sequence[Estimate]
    """One a look, four looks a window; only those that gave a figure."""

    @property
    def errors(self) -> list[float]:
        """Predicted minus observed hit ratio, look by look."""
        return [-look.divergence for look in self.estimates if look.divergence is not None]

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
            abs(look.divergence) <= _CONFIDENCE * look.divergence_stderr
            for look in self.estimates
            if look.divergence is not None and look.divergence_stderr is not None
        ]
        return float(np.mean(covered))


class _Looker:
    """Looks at a monitor at regular times."""

    def __init__(self, monitor: Monitor, every: float, first: float) -> None:
        self.estimates: list[Estimate] = []
        self._monitor = monitor
        self._every = every
        self._next = first

    def admit(self, access: Access) -> None:
        """Pass an admission on, after the looks that are due."""
        while access.time >= self._next:
            look = self._monitor.refresh(self._next)
            if look.divergence is not None:
                self.estimates.append(look)
            self._next += self._every
        self._monitor.admit(access)

    def release(self, time: float, key: Hashable) -> None:
        """Pass a release on."""
        self._monitor.release(time, key)


class _Audience:
    """Several observers of one simulation."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def admit(self, access: Access) -> None:
        """Pass an admission on to all."""
        for observer in self._observers:
            observer.admit(access)

    def release(self, time: float, key: Hashable) -> None:
        """Pass a release on to all."""
        for observer in self._observers:
            observer.release(time, key)


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
) -> list[Outcome]:
    """Put one of ``SCENARIOS`` through the pool, with a monitor for each length of ``windows`` beside it.

    ``conversations`` are turn lengths to draw from, None for the ShareGPT-like law. ``ValueError`` where no window held
    enough for a figure.
    """
    arrivals = SCENARIOS[scenario]
    generated = generate(
        draw_conversations(conversations, count, seed),
        Traffic(arrivals, exponential(MEAN_GAP)),
        block_size=BLOCK_SIZE,
        seed=seed,
    )
    lookers = [
        _Looker(_monitor(seconds, unhashed), seconds / _LOOKS_A_WINDOW, _WARMUP + seconds) for seconds in windows
    ]
    simulate(
        generated.trace,
        make_pool(pool, CAPACITY_BLOCKS, BLOCK_SIZE, unhashed),
        capacity_blocks=CAPACITY_BLOCKS,
        observer=_Audience(lookers),
        service=service,
        seed=seed,
    )
    for seconds, looker in zip(windows, lookers, strict=True):
        if not looker.estimates:
            raise ValueError(f"{count} conversations are too few for windows of {seconds:g} s")
    return [
        Outcome(scenario, arrivals.name, seconds, seed, looker.estimates)
        for seconds, looker in zip(windows, lookers, strict=True)
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

"""One pool under one trace: what it hit, and what a monitor predicted."""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.replay.law import Law
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.pools.pool import Pool, Unhashed
from vllm_hitratio_plugin.replay.simulate import Observed, simulate
from vllm_hitratio_plugin.replay.trace import Trace
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME, Counters, Estimate

PoolKind = Literal["builtin", "vllm"]

_SLOT_SECONDS = 20.0  # as in a serving engine
_MOST_SLOTS = 4000


def make_pool(kind: PoolKind, capacity_blocks: int, block_size: int, unhashed: Unhashed) -> Pool:
    """The rewritten pool, or the installed vLLM's; ``VllmPoolError`` where that cannot be had."""
    if kind == "builtin":
        return BlockLRU(capacity_blocks, block_size, unhashed)
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPool

    return VllmPool(capacity_blocks, block_size, unhashed)


@dataclass(frozen=True)
class Comparison:
    """Observed and predicted over the same prompts."""

    capacity_blocks: int
    observed: Observed
    predicted: dict[str, float | None]
    """ĥ by estimator; None where the window holds nothing to fit."""

    estimate: Estimate
    """The monitor's whole view of the measurement window, at its end."""

    @property
    def error(self) -> float | None:
        """Predicted (reuse-time) minus observed hit ratio."""
        observed, predicted = self.observed.hit_ratio, self.predicted[REUSE_TIME]
        return None if observed is None or predicted is None else predicted - observed


def compare(
    trace: Trace,
    capacity_blocks: int,
    *,
    pool: PoolKind = "builtin",
    unhashed: Unhashed = "tail",
    service: Law | None = None,
    window: tuple[float, float] | None = None,
    seed: int = 0,
    tick: Callable[[int], object] | None = None,
) -> Comparison:
    """Run a trace through a pool that a monitor observes.

    ``window`` [t0, t1] in seconds is what both are measured over; None is the whole trace.
    """
    first, last = window if window is not None else (trace.prompts[0].time, trace.prompts[-1].time)
    duration = max(last - first, 1.0)
    monitor = Monitor(
        block_size=trace.block_size,
        capacity_blocks=capacity_blocks,
        unhashed=unhashed,
        window_seconds=duration,
        slots=min(math.ceil(duration / _SLOT_SECONDS), _MOST_SLOTS),
        grid=(),
        least_requests=1,
        least_reuses=1,
        origin=first,
    )
    observer = _MeasuredMonitor(monitor, first)
    observed = simulate(
        trace,
        make_pool(pool, capacity_blocks, trace.block_size, unhashed),
        capacity_blocks=capacity_blocks,
        observer=observer,
        service=service,
        window=(first, last),
        seed=seed,
        tick=tick,
    )
    estimate = monitor.refresh(last)
    prompt_blocks = monitor.counters.prompt_blocks - observer.before.prompt_blocks
    expected = monitor.counters.predicted_hit_blocks[REUSE_TIME] - observer.before.predicted_hit_blocks[REUSE_TIME]
    return Comparison(
        capacity_blocks=capacity_blocks,
        observed=observed,
        predicted={
            MEAN_FIELD: estimate.predicted[MEAN_FIELD],
            REUSE_TIME: expected / prompt_blocks if prompt_blocks else None,
        },
        estimate=estimate,
    )


class _MeasuredMonitor:
    """A monitor whose counters are noted when the measurement begins."""

    def __init__(self, monitor: Monitor, first: float) -> None:
        self.before = Counters()
        self._monitor = monitor
        self._first = first
        self._begun = False

    def admit(self, access: Access) -> None:
        """Pass an admission on."""
        if not self._begun and access.time >= self._first:
            self._begun = True
            self._monitor.refresh(self._first)
            self.before = self._monitor.counters.copy()
        self._monitor.admit(access)

    def release(self, time: float, key: Hashable) -> None:
        """Pass a release on."""
        self._monitor.release(time, key)

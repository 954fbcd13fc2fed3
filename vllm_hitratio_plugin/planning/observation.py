"""A trace observed: the demand it makes, and what a cache really hit under it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.replay.law import Law
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.pools.pool import Unhashed, block_count
from vllm_hitratio_plugin.replay.simulate import Observed, simulate
from vllm_hitratio_plugin.replay.trace import Trace

Span = tuple[float, float]
"""First and last second of a measurement."""


@dataclass(frozen=True)
class Observation:
    """One pass over a trace."""

    demand: Demand
    observed: Observed


def observe(
    trace: Trace,
    capacity_blocks: int,
    *,
    unhashed: Unhashed = "head",
    service: Law | None = None,
    window: Span | None = None,
    seed: int = 0,
) -> Observation:
    """Replay a trace through an exact block LRU, observed by a monitor that forgets nothing.

    ``window`` [t0, t1] in seconds is what is measured; None is the whole trace. ``service`` is how long requests use
    their blocks; None releases them at once.
    """
    first, last = window if window is not None else (trace.prompts[0].time, trace.prompts[-1].time)
    monitor = Monitor(
        block_size=trace.block_size,
        capacity_blocks=capacity_blocks,
        unhashed=unhashed,
        window_seconds=max(math.nextafter(last, math.inf) - first, 1.0),
        slots=1,
        index_blocks=sum(block_count(prompt.tokens, trace.block_size) for prompt in trace.prompts),
        grid=(),
        least_requests=1,
        least_reuses=1,
        origin=first,
    )
    observed = simulate(
        trace,
        BlockLRU(capacity_blocks, trace.block_size, unhashed),
        capacity_blocks=capacity_blocks,
        observer=monitor,
        service=service,
        window=(first, last),
        seed=seed,
    )
    monitor.refresh(last)
    left_out = observed.rejected + observed.waiting
    return Observation(Demand(monitor.sums, trace.block_size, unhashed, left_out=left_out), observed)

"""Reused runs of blocks, taken out of the sums to be changed and put back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vllm_hitratio_plugin.model.traffic import Array, RunTable, TrafficSums
from vllm_hitratio_plugin.planning.demand import Demand


@dataclass(frozen=True)
class Runs:
    """Kinds of reused runs; all arrays are (n,)."""

    times: Array
    """Reuse times, s; 0 where a request still uses the run."""
    lengths: Array
    """Blocks per run."""
    counts: Array
    """How many there were."""

    @classmethod
    def own(cls, sums: TrafficSums) -> Runs:
        """Those that the same conversation used last: a turn's own history."""
        return cls._part(sums.runs, sums.runs.own_blocks / sums.runs.blocks)

    @classmethod
    def shared(cls, sums: TrafficSums) -> Runs:
        """Those that another conversation used last: system prompts, forks."""
        return cls._part(sums.runs, 1.0 - sums.runs.own_blocks / sums.runs.blocks)

    @classmethod
    def _part(cls, table: RunTable, share: Array) -> Runs:
        kept = share > 0
        return cls(table.reuse_times[kept], table.lengths[kept], table.runs[kept] * share[kept])

    @classmethod
    def joined(cls, *parts: Runs) -> Runs:
        """All the kinds of several tables."""
        columns = zip(*((part.times, part.lengths, part.counts) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    @property
    def blocks(self) -> Array:
        """Blocks of each kind."""
        return self.lengths * self.counts


def with_runs(demand: Demand, own: Runs, shared: Runs) -> Demand:
    """The demand with other reused runs; what is no longer reused is written again instead, and the other way round."""
    table = RunTable.merged(
        [
            RunTable.of(own.times, own.lengths, own=1.0, counts=own.counts),
            RunTable.of(shared.times, shared.lengths, own=0.0, counts=shared.counts),
        ]
    )
    written = demand.sums.written_blocks + demand.sums.reusable_blocks - table.total_blocks
    return replace(demand, sums=replace(demand.sums, runs=table, written_blocks=written))

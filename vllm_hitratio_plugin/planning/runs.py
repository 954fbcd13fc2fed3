"""Reused runs of blocks, taken out of a sums to be changed and put back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vllm_hitratio_plugin.model.traffic import Array, RunTable, TrafficSums
from vllm_hitratio_plugin.planning.demand import Demand


@dataclass(frozen=True)
class Runs:
    """Kinds of reused runs; all arrays are (n,)."""

    gaps: Array
    """Idle seconds; 0 where a request holds the run."""
    lengths: Array
    """Blocks of one run."""
    counts: Array
    """How many there were."""

    @classmethod
    def own(cls, sums: TrafficSums) -> Runs:
        """Those that the same conversation used last: a turn's own history."""
        return cls._part(sums, sums.runs.own_blocks / sums.runs.blocks)

    @classmethod
    def shared(cls, sums: TrafficSums) -> Runs:
        """Those that another conversation used last: system prompts, forks."""
        return cls._part(sums, 1.0 - sums.runs.own_blocks / sums.runs.blocks)

    @classmethod
    def _part(cls, sums: TrafficSums, share: Array) -> Runs:
        kept = share > 0
        return cls(sums.runs.reuse_times[kept], sums.runs.lengths[kept], sums.runs.runs[kept] * share[kept])

    @property
    def blocks(self) -> Array:
        """Blocks of each kind."""
        return self.lengths * self.counts

    def times(self, factor: float) -> Runs:
        """``factor`` times as many of each."""
        return replace(self, counts=self.counts * factor)

    def scaled(self, factor: float) -> Runs:
        """Each ``factor`` times as long."""
        return replace(self, lengths=self.lengths * factor)

    def with_gaps(self, gaps: Array) -> Runs:
        """The same runs idle for other times."""
        return replace(self, gaps=gaps)


def with_runs(demand: Demand, own: Runs, shared: Runs) -> Demand:
    """The demand with other reused runs; what is reused no more is written anew instead, and the other way round."""
    table = RunTable.merged(
        [
            RunTable.of(own.gaps, own.lengths, own=1.0, counts=own.counts),
            RunTable.of(shared.gaps, shared.lengths, own=0.0, counts=shared.counts),
        ]
    )
    written = demand.sums.written_blocks + demand.sums.reusable_blocks - table.total_blocks
    return replace(demand, sums=replace(demand.sums, runs=table, written_blocks=written))

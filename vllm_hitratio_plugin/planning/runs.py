"""Reused runs of blocks, taken out of a sketch to be changed and put back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vllm_hitratio_plugin.model.flow import Array, FlowSketch
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
    def own(cls, sketch: FlowSketch) -> Runs:
        """Those that the same conversation used last: a turn's own history."""
        return cls._part(sketch, sketch.cells[4] / sketch.cells[2])

    @classmethod
    def shared(cls, sketch: FlowSketch) -> Runs:
        """Those that another conversation used last: system prompts, forks."""
        return cls._part(sketch, 1.0 - sketch.cells[4] / sketch.cells[2])

    @classmethod
    def _part(cls, sketch: FlowSketch, share: Array) -> Runs:
        kept = share > 0
        counts, blocks, gap_blocks = sketch.cells[1, kept], sketch.cells[2, kept], sketch.cells[3, kept]
        return cls(gap_blocks / blocks, blocks / counts, counts * share[kept])

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
    sketch = replace(demand.sketch, cells=np.empty((5, 0)))
    sketch.add_runs(own.gaps, own.lengths, own=1.0, counts=own.counts)
    sketch.add_runs(shared.gaps, shared.lengths, own=0.0, counts=shared.counts)
    sketch.reusable_blocks = float(sketch.cells[2].sum())
    sketch.reuse_runs = float(sketch.cells[1].sum())
    sketch.written_blocks += demand.sketch.reusable_blocks - sketch.reusable_blocks
    return replace(demand, sketch=sketch)

"""The hit-ratio curve: expected hits at any capacity, and the capacity for a target, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.traffic import Array, RunTable

#: Halvings before the ramps of a curve are sorted: one in some thousands is left.
_HALVINGS = 12


@dataclass(frozen=True)
class HitRatioCurve:
    """Runs of blocks by their stack distance: hits at any capacity, and the inverse.

    Attributes:
        runs: How often each kind of run was looked up, (n,).
        lengths: Blocks per run, (n,).
        distances: Blocks ahead of its first one in LRU order, blocks in use included, (n,); at most ``-lengths`` where
            a request uses the run, which no capacity can lose.
        prompt_blocks: Denominator of the ratios.
        least_capacity: Blocks in use: no cache can be smaller.
    """

    runs: Array
    lengths: Array
    distances: Array
    prompt_blocks: float
    least_capacity: float = 0.0

    @classmethod
    def of(cls, table: RunTable, displaced: Array, in_use_blocks: float, prompt_blocks: float) -> HitRatioCurve:
        """The curve of a table of runs before each of which ``displaced`` blocks have moved, (n,)."""
        distances = np.where(table.reuse_seconds > 0.0, displaced + in_use_blocks, -table.lengths)
        return cls(table.runs, table.lengths, distances, prompt_blocks, in_use_blocks)

    @classmethod
    def total(cls, curves: Sequence[HitRatioCurve]) -> HitRatioCurve:
        """The runs of several slots together."""
        if not curves:
            nothing = np.empty(0)
            return cls(nothing, nothing, nothing, 0.0)
        prompts = float(sum(curve.prompt_blocks for curve in curves))
        in_use = sum(curve.least_capacity * curve.prompt_blocks for curve in curves) / prompts if prompts else 0.0
        return cls(
            np.concatenate([curve.runs for curve in curves]),
            np.concatenate([curve.lengths for curve in curves]),
            np.concatenate([curve.distances for curve in curves]),
            prompts,
            in_use,
        )

    def hit_blocks(self, capacities: Array | Sequence[float]) -> Array:
        """Expected hits in blocks at each capacity, (k,): ``min(E, max(0, N - D))`` per run.

        A suffix is evicted before its prefix (docs/model.md#suffix-first).
        """
        room = np.asarray(capacities, dtype=float)[:, None] - self.distances
        return np.asarray((np.clip(room, 0.0, self.lengths) * self.runs).sum(axis=1))

    def hit_ratio(self, capacity: float) -> float | None:
        """ĥ(N); None without traffic.

        Example:
            >>> curve = HitRatioCurve(np.array([1.0]), np.array([4.0]), np.array([10.0]), prompt_blocks=8.0)
            >>> curve.hit_ratio(12), round(curve.capacity_for(0.25), 6)
            (0.25, 12.0)
        """
        return self._hits(capacity) / self.prompt_blocks if self.prompt_blocks else None

    def capacity_for(self, target: float) -> float | None:
        """The least capacity, blocks, whose hit ratio is ``target``; None when no capacity reaches it.

        Closed form: the hits are a sum of ramps from D to D + E, so the curve is piecewise linear in N and is inverted
        exactly. Halving first finds the stretch that the answer lies in, so that few ramps are left to sort.
        """
        # Rounding must not put the target a hair above the last knot.
        wanted = target * self.prompt_blocks * (1 - 1e-9)
        if not self.prompt_blocks or wanted > float((self.runs * self.lengths).sum()):
            return None
        if wanted <= self._hits(self.least_capacity):
            return self.least_capacity
        ends = self.distances + self.lengths
        low, high = self.least_capacity, float(ends.max())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._hits(middle) < wanted:
                low = middle
            else:
                high = middle
        starting, ending = (self.distances > low) & (self.distances < high), (ends > low) & (ends < high)
        knots = np.concatenate([self.distances[starting], ends[ending]])
        order = np.argsort(knots, kind="stable")
        knots = np.concatenate([[low], knots[order], [high]])
        turns = np.concatenate([self.runs[starting], -self.runs[ending]])[order]
        slopes = self.runs[(self.distances <= low) & (ends > low)].sum() + np.concatenate([[0.0], np.cumsum(turns)])
        hits = self._hits(low) + np.concatenate([[0.0], np.cumsum(slopes * np.diff(knots))])
        index = min(max(int(np.searchsorted(hits, wanted)), 1), len(knots) - 1)
        rise = hits[index] - hits[index - 1]
        share = min((wanted - hits[index - 1]) / rise, 1.0) if rise > 0 else 1.0
        return float(knots[index - 1] + share * (knots[index] - knots[index - 1]))

    def _hits(self, capacity: float) -> float:
        return float(self.hit_blocks([capacity])[0])

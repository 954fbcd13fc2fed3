"""The hit ratio by capacity: targets, knee, gain per GiB."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.knee import knee
from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.planning.demand import Demand

GIB = float(1 << 30)

#: The curve is drawn, and its knee sought, up to where it has this share of its ceiling: a few very late returns would
#: stretch it without end.
_NEARLY_ALL = 0.99

_SLOPE_WIDTH = 0.1


@dataclass(frozen=True)
class CapacityForTarget:
    """What a target hit ratio needs."""

    target: float
    blocks: float | None
    """Capacity, blocks; None where there is no answer."""
    reason: str | None = None
    """Why there is none, one sentence."""


class CapacityCurve:
    """The estimated hit ratio of a demand at every capacity that anything is known of."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._curve = demand.curve
        self.ceiling = demand.model.ceiling

    def hit_ratio(self, capacity: float) -> float | None:
        """ĥ(N); None without traffic, and beyond what is known."""
        return self._curve.hit_ratio(capacity) if self._demand.knows(capacity) else None

    def capacity_for(self, target: float) -> CapacityForTarget:
        """The least capacity with that hit ratio, in closed form (docs/model.md#flow-form)."""
        demand = self._demand
        if self.ceiling is None:
            return CapacityForTarget(target, None, "there is no traffic")
        blocks = self._curve.capacity_for(target)
        if blocks is not None and demand.knows(blocks):
            return CapacityForTarget(target, blocks)
        seen = f"{100 * self.ceiling:.1f} % were seen before"
        if demand.horizon_blocks is not None:
            reason = f"not with the {demand.horizon_blocks:,.0f} blocks that reuse is known for; more may or may not do"
        elif demand.left_out:
            reason = (
                f"not known: {seen} in the prompts that got blocks; without blocks, and left out: {demand.left_out:,}"
            )
        else:
            reason = f"no capacity reaches it: only {seen}"
        return CapacityForTarget(target, None, reason)

    @property
    def full(self) -> float | None:
        """Capacity, blocks, that reaches 99 % of the ceiling, or the end of what is known; None where nothing is."""
        if not self.ceiling:
            return None
        blocks = self._curve.capacity_for(_NEARLY_ALL * self.ceiling)
        assert blocks is not None
        blocks, horizon = max(blocks, 1.0), self._demand.horizon_blocks
        return blocks if horizon is None else min(blocks, horizon)

    @property
    def knee(self) -> float | None:
        """Capacity, blocks, beyond which another GiB gains less than the average GiB up to :attr:`full` does.

        Between the blocks in use and :attr:`full`; None where the curve is flat.
        """
        if self.full is None:
            return None
        sizes = np.linspace(min(self._curve.least_capacity, self.full), self.full, 2001)
        return knee(sizes, self.ratios(sizes))

    def ratios(self, capacities: Array) -> Array:
        """ĥ at each capacity, blocks; both (k,). Without regard to what is known."""
        return np.asarray(self._curve.hit_blocks(capacities) / max(self._curve.prompt_blocks, 1e-9))

    def gain(self, capacity: float, more: float) -> float | None:
        """What ``more`` blocks on top of ``capacity`` add to the hit ratio; None beyond what is known.

        Where that is less than a fifth of ``capacity`` it is the slope over 10 % to both sides: a finer one would be
        the noise of single runs.
        """
        low, high = capacity, capacity + more
        if more < 2 * _SLOPE_WIDTH * capacity:
            low, high = capacity * (1 - _SLOPE_WIDTH), capacity * (1 + _SLOPE_WIDTH)
        before, after = self.hit_ratio(low), self.hit_ratio(high)
        return None if before is None or after is None else (after - before) / (high - low) * more

    def points(self, capacity: float, count: int = 80) -> tuple[Array, Array]:
        """Capacities and ratios to draw, from a sixteenth of ``capacity`` to what shows all of it; both (count,)."""
        last = max(2 * capacity, min(self.full or 0.0, 16 * capacity))
        if self._demand.horizon_blocks is not None:
            last = min(last, self._demand.horizon_blocks)
        sizes = np.geomspace(min(capacity / 16, last / 2), last, count)
        return sizes, self.ratios(sizes)

"""The hit ratio by capacity: targets, knee, gain per GiB."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.hit_ratio_curve import HitRatioCurve
from vllm_hitratio_plugin.model.knee import knee
from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.planning.demand import Demand

GIB = float(1 << 30)

#: The curve is drawn, and its knee sought, up to where it has this share of its ceiling: a few very late returns would
#: stretch it without end.
_NEARLY_ALL = 0.99

_SLOPE_WIDTH = 0.1


@dataclass(frozen=True)
class Need:
    """What a target needs."""

    target: float
    blocks: float | None
    """Capacity, blocks; None where there is no answer."""
    reason: str | None = None
    """Why there is none, one sentence."""


class Curve:
    """The estimated hit ratio at every capacity that anything is known of."""

    def __init__(self, demand: Demand) -> None:
        self._fit: HitRatioCurve = demand.fit
        self._horizon = demand.horizon_blocks
        self._left_out = demand.left_out
        self.ceiling = demand.flow.ceiling

    def knows(self, capacity: float) -> bool:
        """Whether reuse at that capacity, blocks, was remembered."""
        return self._horizon is None or capacity <= self._horizon * (1 + 1e-9)

    def hit_ratio(self, capacity: float) -> float | None:
        """ĥ(N); None without traffic, and beyond what is known."""
        return self._fit.hit_ratio(capacity) if self.knows(capacity) else None

    def need(self, target: float) -> Need:
        """The least capacity with that hit ratio, closed form (MODEL section 3)."""
        if self.ceiling is None:
            return Need(target, None, "there is no traffic")
        blocks = self._fit.capacity_for(target)
        if blocks is not None and self.knows(blocks):
            return Need(target, blocks)
        if self._horizon is not None:
            return Need(
                target,
                None,
                f"not with the {self._horizon:,.0f} blocks that reuse is known for; more may or may not do",
            )
        if self._left_out:
            return Need(
                target,
                None,
                f"not known: {100 * self.ceiling:.1f} % were seen before in the prompts that got blocks; "
                f"without blocks, and left out: {self._left_out:,}",
            )
        return Need(target, None, f"no capacity reaches it: only {100 * self.ceiling:.1f} % were seen before")

    @property
    def full(self) -> float | None:
        """Capacity, blocks, that reaches 99 % of the ceiling, or the end of what is known; None where nothing is."""
        if not self.ceiling:
            return None
        blocks = self._fit.capacity_for(_NEARLY_ALL * self.ceiling)
        assert blocks is not None
        blocks = max(blocks, 1.0)
        return blocks if self._horizon is None else min(blocks, self._horizon)

    @property
    def knee(self) -> float | None:
        """Capacity, blocks, beyond which another GiB gains less than the average GiB up to :attr:`full` does.

        On the curve between the blocks in use and :attr:`full`, the point farthest above the chord (Satopaa et al.
        2011, "Kneedle"): there the slope of the curve's concave hull falls under that of the chord. No fraction to
        choose, and units do not matter. None where the curve is flat.
        """
        if self.full is None:
            return None
        sizes = np.linspace(min(self._fit.least_capacity, self.full), self.full, 2001)
        return knee(sizes, self.ratios(sizes))

    def ratios(self, capacities: Array) -> Array:
        """ĥ at each capacity, blocks; both (k,). Without regard to what is known."""
        return np.asarray(self._fit.hit_blocks(capacities) / max(self._fit.prompt_blocks, 1e-9))

    def gain(self, capacity: float, more: float) -> float | None:
        """What ``more`` blocks beside ``capacity`` add to the hit ratio; None beyond what is known.

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
        if self._horizon is not None:
            last = min(last, self._horizon)
        sizes = np.geomspace(min(capacity / 16, last / 2), last, count)
        return sizes, self.ratios(sizes)

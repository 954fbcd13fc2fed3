"""Reading the curve: hit ratio by capacity."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise


def ratio_at(curve: Mapping[int, float], blocks: float) -> float | None:
    """Linear between the curve's capacities; None outside of them."""
    for (low, below), (high, above) in pairwise(sorted(curve.items())):
        if low <= blocks <= high:
            return below + (above - below) * (blocks - low) / (high - low)
    return None


def knee(curve: Mapping[int, float], share: float = 0.9) -> int | None:
    """The least capacity of the curve with ``share`` of the best ratio on it; None for an empty or flat-zero curve."""
    best = max(curve.values(), default=0.0)
    return next((size for size, ratio in sorted(curve.items()) if best > 0 and ratio >= share * best), None)


def capacity_surviving(survival: Mapping[int, float | None], seconds: float) -> float | None:
    """Blocks with which an unused block survives ``seconds``, linear between the capacities known; None beyond them."""
    known = [(size, float("inf") if time is None else time) for size, time in sorted(survival.items())]
    for (low, below), (high, above) in pairwise(known):
        if below < seconds <= above:
            return float(high) if above == float("inf") else low + (high - low) * (seconds - below) / (above - below)
    return None

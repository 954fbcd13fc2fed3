"""Reading figures that are known at a few capacities: hit ratios and characteristic times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from vllm_hitratio_plugin.model.knee import knee

#: The knee is sought up to the capacity with this share of the ceiling, as `hitratio plan` does.
_NEARLY_ALL = 0.99


def ratio_at(curve: Mapping[int, float], blocks: float) -> float | None:
    """Hit ratio at ``blocks``, linear between the curve's capacities; None outside of them."""
    for (low, below), (high, above) in pairwise(sorted(curve.items())):
        if low <= blocks <= high:
            return below + (above - below) * (blocks - low) / (high - low)
    return None


def knee_of(curve: Mapping[int, float], ceiling: float, in_use_blocks: float = 0.0) -> float | None:
    """The capacity, blocks, beyond which another block gains less than the average one; None for a flat curve.

    The curve is taken from the blocks in use to nearly all of the ceiling.
    """
    points = sorted((size, ratio) for size, ratio in curve.items() if size >= in_use_blocks)
    end = next((index for index, (_, ratio) in enumerate(points) if ratio >= _NEARLY_ALL * ceiling), len(points) - 1)
    return knee([size for size, _ in points[: end + 1]], [ratio for _, ratio in points[: end + 1]])


def capacity_surviving(times: Mapping[int, float | None], seconds: float) -> float | None:
    """Blocks with a characteristic time of ``seconds``, linear between the capacities known; None beyond them.

    A time of None means that nothing displaces what is cached.
    """
    known = [(size, math.inf if time is None else time) for size, time in sorted(times.items())]
    for (low, below), (high, above) in pairwise(known):
        if below < seconds <= above:
            return float(high) if above == math.inf else low + (high - low) * (seconds - below) / (above - below)
    return None

"""How much two chains of ids have in common."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def common_prefix(run: Sequence[Hashable], blocks: Sequence[Hashable], position: int, end: int) -> int:
    """How many leading blocks of ``run`` stand at ``position``, up to ``end``; the first one does.

    Ids are chained, so a binary search settles it.
    """
    low, high = 1, end - position
    while low < high:
        middle = (low + high + 1) // 2
        if run[middle - 1] == blocks[position + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low

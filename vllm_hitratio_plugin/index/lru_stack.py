"""The LRU stack by weights: how many blocks were released after a given one (Mattson et al. 1970)."""

from __future__ import annotations

from collections.abc import Iterable

_RADIX_BITS = 5
_RADIX = 1 << _RADIX_BITS
_MASK = _RADIX - 1


class LRUStack:
    """Places in the order of release, each with the blocks that stand there.

    An LRU cache of N blocks holds exactly the N blocks at the top of this stack, whatever N is, so one stack answers
    for every capacity at once. Sums are kept at three levels of 32, which makes a query three short sums at C speed.

    Memory: 8 bytes per place; :meth:`compacted` drops the places that are empty.
    """

    def __init__(self) -> None:
        self._places: list[int] = []
        self._groups: list[int] = []
        self._supergroups: list[int] = []
        #: Places, empty ones included.
        self.size = 0

    def push(self, blocks: int) -> int:
        """Put ``blocks`` on top; returns their place."""
        place = self.size
        self.size = place + 1
        if not place & _MASK:
            self._groups.append(0)
            if not (place >> _RADIX_BITS) & _MASK:
                self._supergroups.append(0)
        self._places.append(blocks)
        self._groups[-1] += blocks
        self._supergroups[-1] += blocks
        return place

    def take(self, place: int, blocks: int) -> None:
        """Remove ``blocks`` that stand at ``place``."""
        self._places[place] -= blocks
        self._groups[place >> _RADIX_BITS] -= blocks
        self._supergroups[place >> (2 * _RADIX_BITS)] -= blocks

    def above(self, place: int, under: int) -> int:
        """Blocks above those that stand at ``place``, and above the last ``under`` of these."""
        group = place >> _RADIX_BITS
        supergroup = group >> _RADIX_BITS
        beside = self._places[place] - under
        return (
            (beside if beside > 0 else 0)
            + sum(self._places[place + 1 : (group + 1) << _RADIX_BITS])
            + sum(self._groups[group + 1 : (supergroup + 1) << _RADIX_BITS])
            + sum(self._supergroups[supergroup + 1 :])
        )

    def compacted(self, named: Iterable[int], limit: int) -> tuple[LRUStack, dict[int, int]]:
        """The same stack without empty places, and where each ``named`` place went.

        Places that are not named (blocks that can never be asked for again) are dropped below ``limit`` blocks: no
        capacity asked about reaches so deep.
        """
        keep = set(named)
        kept: list[int] = []
        depth = 0
        for place in range(len(self._places) - 1, -1, -1):
            blocks = self._places[place]
            if blocks and (depth <= limit or place in keep):
                kept.append(place)
            depth += blocks
        fresh = LRUStack()
        moved = {place: fresh.push(self._places[place]) for place in reversed(kept)}
        return fresh, moved

"""When a slot is cut in parts: before its requests move more than the cache has room for."""

from __future__ import annotations

#: A slot is fitted in parts where its prompts come to more than this share of the room that requests leave in the
#: cache. A part then moves too little to evict what it brought, so that taking its rates as constant costs little,
#: however the traffic comes.
_PART_SHARE = 1 / 2

#: Cuts of a slot beyond which its parts get larger: each takes some milliseconds.
_CUTS = 40


class SlotParts:
    """Blocks that may be asked for until the next cut (docs/model.md#local-displacement).

    Args:
        capacity_blocks: N.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._part = capacity_blocks * _PART_SHARE
        self._cuts = 0
        self._asked = 0.0
        #: Blocks left until the next cut.
        self.room = self._part

    def cut(self) -> None:
        """A part of the slot is over."""
        self._asked += self._part - self.room
        self._cuts += 1
        if self._cuts % _CUTS == 0:
            self._part *= 2
        self.room = self._part

    def next_slot(self, in_use_blocks: float) -> None:
        """A slot is over; the next one is cut by what was asked for in it, and by the room that is left."""
        asked = self._asked + self._part - self.room
        free = max(self._capacity - in_use_blocks, 1.0)
        self._part = self.room = max(free * _PART_SHARE, asked / _CUTS)
        self._cuts, self._asked = 0, 0.0

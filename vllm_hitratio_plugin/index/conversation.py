"""A conversation as the server sees it: the turns so far, never known to be over."""

from __future__ import annotations

from collections import OrderedDict

#: How many prompts back the sizes of a conversation's prompts are remembered.
LAGS = 16


class Conversation:
    """The last turn of one conversation (docs/model.md#objects-and-units).

    Attributes:
        arrival: Seconds, when the last prompt arrived.
        blocks: Full blocks of the last prompt: what its next turn can reuse.
        cached: Full blocks that the last turn left in the cache, those of its answer included where it is cached too.
        prompt_blocks: R_j, blocks of the last prompt with the partly filled one.
        sizes: Full blocks of the last prompts, latest first, at most ``LAGS`` of them.
        released: Seconds, when the last prompt released its blocks; its arrival, as long as it uses them.
        declared_turn: The last turn's number as the client counts; 0 where it never said.
        turns: Turns seen, j.
    """

    __slots__ = ("arrival", "blocks", "cached", "declared_turn", "prompt_blocks", "released", "sizes", "turns")

    def __init__(self) -> None:
        self.arrival = 0.0
        self.blocks = 0
        self.cached = 0
        self.prompt_blocks = 0
        self.released = float("-inf")
        self.sizes: tuple[int, ...] = ()
        self.declared_turn = 0
        self.turns = 0

    def begin_turn(self, time: float, full_blocks: int, prompt_blocks: int, declared_turn: int | None) -> None:
        """The next prompt arrived, with so many full blocks and so many in all."""
        self.sizes = (full_blocks, *self.sizes[: LAGS - 1])
        if declared_turn is not None:
            self.declared_turn = declared_turn
        self.turns += 1
        self.arrival = self.released = time
        self.blocks = self.cached = full_blocks
        self.prompt_blocks = prompt_blocks

    def cut(self, blocks: int) -> None:
        """The last prompt was computed only as far as its first ``blocks`` full blocks."""
        self.blocks = self.cached = blocks
        self.sizes = (blocks, *self.sizes[1:])


class NamedConversations:
    """Conversations that carry an explicit id, the least recently used forgotten first.

    Memory: at most ``limit`` entries of about 300 bytes, the id's digest included.
    """

    def __init__(self, limit: int = 65536) -> None:
        self._limit = limit
        self._by_id: OrderedDict[str, Conversation] = OrderedDict()

    def get(self, name: str) -> Conversation:
        """The conversation of that id; a new one (no turns yet) if it is not remembered."""
        found = self._by_id.get(name)
        if found is None:
            found = self._by_id[name] = Conversation()
            if len(self._by_id) > self._limit:
                self._by_id.popitem(last=False)
        else:
            self._by_id.move_to_end(name)
        return found

    def __len__(self) -> int:
        return len(self._by_id)

"""A node of the prefix tree: a run of blocks that were always used together."""

from __future__ import annotations

from collections.abc import Hashable

from vllm_hitratio_plugin.index.conversation import Conversation


class Node:
    """Positions ``start`` to ``start + len(blocks)`` of a prompt.

    Attributes:
        parent: The run before it, None at position 0.
        blocks: Chained ids; the last one names the whole prefix, so one comparison settles a whole run.
        start: Position of the first block.
        children: How many nodes name this one as parent.
        users: Requests that use these blocks now.
        place: Their place in the LRU stack; -1 while in use, and after a reset.
        released: Seconds, when the last of the users released them.
        conversation: The conversation whose last prompt ends inside this run.
    """

    __slots__ = ("blocks", "children", "conversation", "parent", "place", "released", "start", "users")

    def __init__(self, parent: Node | None, blocks: list[Hashable], start: int, released: float) -> None:
        self.parent = parent
        self.blocks = blocks
        self.start = start
        self.children = 0
        self.users = 0
        self.place = -1
        self.released = released
        self.conversation: Conversation | None = None

    @property
    def end(self) -> int:
        """Position behind the last block: how many blocks the prefix that ends here has."""
        return self.start + len(self.blocks)

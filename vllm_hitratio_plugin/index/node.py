"""A node of the prefix tree: a run of blocks that were always used together."""

from __future__ import annotations

from collections.abc import Hashable

from vllm_hitratio_plugin.index.conversation import Conversation


class Copy:
    """One set of physical blocks with the content of a run: the node itself, or one written while that was not hit.

    Attributes:
        place: Its place in the LRU stack; -1 while in use, and after a reset.
        under: Blocks that were pushed there together, from this run's first one on: more than its own where it was
            split since.
        released: Seconds, when the last of its users released it.
        writer: The request that wrote a further copy and still uses it; None afterwards. Nobody else does: a lookup
            returns the copy written first.
    """

    __slots__ = ("place", "released", "under", "writer")

    def __init__(self, writer: Hashable | None) -> None:
        self.writer = writer
        self.place = -1
        self.under = 0
        self.released = 0.0


class Node(Copy):
    """Positions ``start`` to ``start + len(blocks)`` of a prompt.

    Attributes:
        parent: The run before it, None at position 0.
        blocks: Chained ids; the last one names the whole prefix, so one comparison settles a whole run.
        start: Position of the first block.
        children: How many nodes name this one as parent.
        users: Requests that use the first copy of these blocks now.
        copies: Further copies, in the order of writing (docs/model.md#copies-and-content-in-flight); hardly ever any.
        conversation: The conversation whose last prompt ends inside this run.
    """

    __slots__ = ("blocks", "children", "conversation", "copies", "parent", "start", "users")

    def __init__(self, parent: Node | None, blocks: list[Hashable], start: int, released: float) -> None:
        self.writer = None
        self.place = -1
        self.under = 0
        self.released = released
        self.parent = parent
        self.blocks = blocks
        self.start = start
        self.children = 0
        self.users = 0
        self.copies: tuple[Copy, ...] = ()
        self.conversation: Conversation | None = None

    @property
    def end(self) -> int:
        """Position behind the last block: how many blocks the prefix that ends here has."""
        return self.start + len(self.blocks)

    @property
    def used(self) -> bool:
        """Whether a request uses one of the copies."""
        return self.users > 0 or any(copy.writer is not None for copy in self.copies)

    @property
    def youngest(self) -> Copy:
        """The copy that was released last: whatever the capacity, it is evicted last."""
        return max((self, *self.copies), key=lambda copy: copy.place)

    def split(self, at: int) -> Node:
        """Cut the run; this node keeps the lower part, since requests hold on to it. Returns the upper part."""
        upper = Node(self.parent, self.blocks[:at], self.start, self.released)
        upper.children = 1
        upper.users = self.users
        upper.place, upper.under = self.place, self.under
        for copy in self.copies:
            other = Copy(copy.writer)
            other.place, other.under, other.released = copy.place, copy.under, copy.released
            copy.under -= at
            upper.copies += (other,)
        conversation = self.conversation
        if conversation is not None and conversation.blocks <= self.start + at:
            upper.conversation, self.conversation = conversation, None
        self.parent = upper
        self.blocks = self.blocks[at:]
        self.start += at
        self.under -= at
        return upper

    def forget_first(self) -> None:
        """The first copy is gone: the next one takes its place, and with it the request that uses it."""
        first, self.copies = self.copies[0], self.copies[1:]
        self.place, self.under, self.released = first.place, first.under, first.released
        self.users = 0 if first.writer is None else 1

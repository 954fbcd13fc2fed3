"""The compressed prefix tree: which blocks of a prompt were seen before, and how long ago each was released."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from vllm_hitratio_plugin.workload.conversation import Conversation
from vllm_hitratio_plugin.workload.recency_stack import RecencyStack

#: Bytes of one remembered block (a list slot and a 32-byte digest object) and of one node (slots, list, two dict
#: entries), measured with ``sys.getsizeof`` on CPython 3.11.
BYTES_PER_BLOCK = 88
BYTES_PER_NODE = 420


_INSTANT_S = 1e-9

#: Places of the recency stack beyond which the empty ones are looked for.
_PLACES = 65536


class Node:
    """A run of blocks that were always used together: positions ``start`` to ``start + len(blocks)`` of a prompt.

    Attributes:
        parent: The run before it, None at position 0.
        blocks: Chained ids; the last one names the whole prefix, so one comparison settles a whole run.
        start: Position of the first block.
        children: How many nodes name this one as parent.
        pins: Requests that hold these blocks now.
        place: Where they stand in the recency stack; -1 while held, and after a reset.
        released: Seconds, when the last of them let go.
        conversation: The conversation whose last prompt ends inside this run.
    """

    __slots__ = ("blocks", "children", "conversation", "parent", "pins", "place", "released", "start")

    def __init__(self, parent: Node | None, blocks: list[Hashable], start: int, released: float) -> None:
        self.parent = parent
        self.blocks = blocks
        self.start = start
        self.children = 0
        self.pins = 0
        self.place = -1
        self.released = released
        self.conversation: Conversation | None = None


class Match:
    """What the tree knew of one prompt.

    Attributes:
        gaps: Seconds of each run of known blocks, from its release to this lookup; 0 exactly where it is held.
            Non-decreasing along a prompt up to the noise of concurrent releases.
        lengths: Blocks of each run, root first.
        ahead: Blocks released since the first one of each run was, other than those in use; -1 where held.
        known: Blocks seen before and still reusable: the sum of ``lengths``.
        lost: Blocks seen before, in a cache that was reset since.
        node: The deepest node of the prompt; None for a prompt without a full block.
        conversation: The conversation this prompt continues by its prefix chain, if any.
        forked: The prompt left a remembered run in its middle.
        branched: It left a history where others go on differently, be that place new or known.
    """

    __slots__ = ("ahead", "branched", "conversation", "forked", "gaps", "known", "lengths", "lost", "node")

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self.lengths: list[int] = []
        self.ahead: list[int] = []
        self.known = 0
        self.lost = 0
        self.node: Node | None = None
        self.conversation: Conversation | None = None
        self.forked = False
        self.branched = False


class PrefixTree:
    """Remembers the most recently used blocks, as few nodes as there are different histories (MODEL 4.6).

    Guarantee: a prompt of B blocks in r runs costs O(r + log B) comparisons plus the copying of its new blocks.
    Memory: at most ``limit_blocks`` blocks beyond those in use, least recently released forgotten first, a suffix
    before its prefix; ``BYTES_PER_BLOCK`` each, plus ``BYTES_PER_NODE`` a run.
    """

    def __init__(self, limit_blocks: int) -> None:
        self.limit_blocks = limit_blocks
        self.blocks = 0
        #: Of them, those in use.
        self.held_blocks = 0
        # Ids are chained, so an id alone names its whole prefix: one dictionary holds every node's first block.
        self._heads: dict[Hashable, Node] = {}
        # From least to most recently released. A suffix is moved before its prefix, so the oldest is always a leaf.
        self._recency: OrderedDict[Node, None] = OrderedDict()
        self._stack = RecencyStack()
        self._compact_at = _PLACES

    def admit(self, blocks: Sequence[Hashable], count: int, time: float) -> Match:
        """Look a prompt's first ``count`` blocks up, remember them and hold them until :meth:`release`.

        Args:
            blocks: Chained ids, at least ``count``.
            count: Full blocks of the prompt.
            time: Seconds, the moment of the lookup.
        """
        match = Match()
        heads = self._heads
        gaps, lengths, aheads = match.gaps, match.lengths, match.ahead
        stack = self._stack
        position = 0
        node: Node | None = None
        while position < count:
            found = heads.get(blocks[position])
            if found is None or found.start != position:
                break
            run = found.blocks
            end = position + len(run)
            if end > count or blocks[end - 1] != run[-1]:
                shared = _common(run, blocks, position, min(end, count))
                match.forked = position + shared < count
                end = position + shared
                found = self._split(found, shared)
            conversation = found.conversation
            if conversation is not None and conversation.blocks <= end:
                match.conversation = conversation
            if found.pins == 0:
                if found.place < 0:
                    match.lost += end - position
                    position, node = end, found
                    continue
                gap = time - found.released
                # Only a held run has gap 0; nothing else may look like one, however coarse or wrong the clock.
                if gap < _INSTANT_S:
                    gap = _INSTANT_S
                ahead = stack.above(found.place)
                joined = bool(gaps) and gaps[-1] == gap and ahead == aheads[-1] + lengths[-1]
            else:
                gap = 0.0
                ahead = -1
                joined = bool(aheads) and aheads[-1] == -1
            blocks_here = end - position
            if joined:
                lengths[-1] += blocks_here
            else:
                gaps.append(gap)
                lengths.append(blocks_here)
                aheads.append(ahead)
            match.known += blocks_here
            position, node = end, found
            if match.forked:
                break
        held = node
        while held is not None:
            if held.pins == 0:
                self._hold(held)
            held.pins += 1
            held = held.parent
        if position < count:
            match.branched = node is not None and node.children > 0
            node = self._grow(node, blocks[position:count])
        match.node = node
        return match

    def extend(self, node: Node | None, blocks: Sequence[Hashable], count: int) -> Node | None:
        """A held prompt grew (its answer's blocks were cached too): remember the blocks up to ``count``.

        Returns the new deepest node, held like the old one. Blocks another request already brought are only held.
        """
        position = 0 if node is None else node.start + len(node.blocks)
        heads = self._heads
        while position < count:
            found = heads.get(blocks[position])
            if found is None or found.start != position:
                break
            end = position + len(found.blocks)
            if end > count or blocks[end - 1] != found.blocks[-1]:
                shared = _common(found.blocks, blocks, position, min(end, count))
                end = position + shared
                found = self._split(found, shared)
            if found.pins == 0:
                self._hold(found)
            found.pins += 1
            position, node = end, found
        return self._grow(node, blocks[position:count]) if position < count else node

    def release(self, node: Node | None, time: float, unhashed: int = 0) -> None:
        """A request let go of the prompt that ends at ``node``; then forget what is over the limit.

        Args:
            node: The deepest node.
            time: Seconds.
            unhashed: Blocks without a hash that queue up behind it: they displace others and serve nobody.
        """
        recency, stack = self._recency, self._stack
        if unhashed:
            stack.push(unhashed)
        while node is not None:
            node.pins -= 1
            node.released = time
            if node.pins == 0:
                size = len(node.blocks)
                node.place = stack.push(size)
                self.held_blocks -= size
            recency.move_to_end(node)
            node = node.parent
        if self.blocks > self.limit_blocks:
            self._forget()
        if stack.size > self._compact_at:
            self._compact()

    def cut(self, node: Node, count: int) -> int:
        """Forget what a released prompt ending at ``node`` has beyond its first ``count`` blocks, unless others use it.

        Returns the number of blocks forgotten. Its conversation goes on from what is left.
        """
        conversation = node.conversation
        forgotten = 0
        end: Node | None = node
        while end is not None and end.start + len(end.blocks) > count and not end.pins and not end.children:
            if end not in self._recency:
                break  # forgotten at its release, in an index that is too small for it
            excess = len(end.blocks) - max(count - end.start, 0)
            forgotten += excess
            if end.start < count:
                self.blocks -= excess
                if end.place >= 0:
                    self._stack.take(end.place, excess)
                del end.blocks[-excess:]
                break
            del self._recency[end]
            self._drop(end)
            end = end.parent
        if forgotten and end is not None and end.conversation is None:
            end.conversation = conversation
        return forgotten

    def reset(self) -> None:
        """The engine dropped its cache: nothing released before can be hit any more."""
        self._stack = RecencyStack()
        for node in self._recency:
            node.place = -1

    @property
    def nodes(self) -> int:
        """Runs remembered."""
        return len(self._recency)

    @property
    def bytes(self) -> int:
        """Approximate memory of what is remembered."""
        return self.blocks * BYTES_PER_BLOCK + len(self._recency) * BYTES_PER_NODE

    def _grow(self, node: Node | None, new: Sequence[Hashable]) -> Node:
        """Append blocks to a held prompt that ends at ``node``; they are held with it."""
        added = len(new)
        self.blocks += added
        self.held_blocks += added
        # A leaf that only this prompt holds simply gets longer: a conversation stays one node.
        if node is not None and node.children == 0 and node.pins == 1:
            node.blocks.extend(new)
            return node
        start = 0 if node is None else node.start + len(node.blocks)
        grown = Node(node, list(new), start, 0.0)
        grown.pins = 1
        if node is not None:
            node.children += 1
        self._heads[new[0]] = grown
        self._recency[grown] = None
        return grown

    def _split(self, node: Node, at: int) -> Node:
        """Cut a run; the lower part keeps its identity, since requests in flight hold on to it. Returns the upper."""
        if at == len(node.blocks):
            return node
        upper = Node(node.parent, node.blocks[:at], node.start, node.released)
        upper.children = 1
        upper.pins = node.pins
        # The two halves share a place until the upper one is held, which is the next thing that happens to it.
        upper.place = node.place
        conversation = node.conversation
        if conversation is not None and conversation.blocks <= node.start + at:
            upper.conversation, node.conversation = conversation, None
        node.parent = upper
        node.blocks = node.blocks[at:]
        node.start += at
        self._heads[upper.blocks[0]] = upper
        self._heads[node.blocks[0]] = node
        self._recency[upper] = None
        return upper

    def _hold(self, node: Node) -> None:
        size = len(node.blocks)
        self.held_blocks += size
        place = node.place
        if place >= 0:
            self._stack.take(place, size)
            node.place = -1

    def _compact(self) -> None:
        placed = [node for node in self._recency if node.place >= 0]
        self._stack, moved = self._stack.compacted((node.place for node in placed), self.limit_blocks)
        for node in placed:
            node.place = moved[node.place]
        self._compact_at = self._stack.size * 4 + _PLACES

    def _forget(self) -> None:
        recency = self._recency
        for _ in range(len(recency)):
            if self.blocks <= self.limit_blocks:
                return
            node, _ = recency.popitem(last=False)
            if node.pins or node.children:
                # In use: its release will move it here anyway, so moving it now is not paid for twice.
                recency[node] = None
                continue
            self._drop(node)

    def _drop(self, node: Node) -> None:
        """A leaf that nobody holds, no longer in the order of recency."""
        self.blocks -= len(node.blocks)
        if node.place >= 0:
            self._stack.take(node.place, len(node.blocks))
        del self._heads[node.blocks[0]]
        if node.parent is not None:
            node.parent.children -= 1


def _common(run: list[Hashable], blocks: Sequence[Hashable], position: int, end: int) -> int:
    """How many leading blocks of ``run`` stand at ``position``; ids are chained, so a binary search settles it."""
    low, high = 1, end - position
    while low < high:
        middle = (low + high + 1) // 2
        if run[middle - 1] == blocks[position + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low

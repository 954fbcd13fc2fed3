"""The compressed prefix tree: which blocks of a prompt were seen before, and how long ago each was released."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence

from vllm_hitratio_plugin.index.common_prefix import common_prefix
from vllm_hitratio_plugin.index.lru_stack import LRUStack
from vllm_hitratio_plugin.index.match import Match
from vllm_hitratio_plugin.index.node import Copy, Node

#: Bytes of one remembered block (a list slot and a 32-byte digest object) and of one node (slots, list, two dict
#: entries), measured with ``sys.getsizeof`` on CPython 3.11.
BYTES_PER_BLOCK = 88
BYTES_PER_NODE = 420
#: Least reuse time of a run that is not in use, s.
_INSTANT_S = 1e-9
#: Places of the LRU stack beyond which the empty ones are looked for.
_PLACES = 65536


class PrefixTree:
    """Remembers the most recently used blocks, with as few nodes as there are different histories.

    See docs/model.md#shared-prefixes.

    Guarantee: a prompt of B blocks in r runs costs O(r + log B) comparisons plus the copying of its new blocks.
    Memory: at most ``limit_blocks`` blocks beyond those in use, least recently released forgotten first, a suffix
    before its prefix; ``BYTES_PER_BLOCK`` each, plus ``BYTES_PER_NODE`` per run.
    """

    def __init__(self, limit_blocks: int) -> None:
        self.limit_blocks = limit_blocks
        self.blocks = 0
        #: Of them, those in use.
        self.in_use_blocks = 0
        # Ids are chained, so an id alone names its whole prefix: one dictionary holds every node's first block.
        self._heads: dict[Hashable, Node] = {}
        # From least to most recently released. A suffix is moved before its prefix, so the oldest is always a leaf.
        self._recency: OrderedDict[Node, None] = OrderedDict()
        self._stack = LRUStack()
        self._compact_at = _PLACES

    def look_up(self, blocks: Sequence[Hashable], count: int, time: float) -> Match:
        """What is remembered of a prompt's first ``count`` blocks.

        Args:
            blocks: Chained ids, at least ``count``.
            count: Full blocks of the prompt.
            time: Seconds, the moment of the lookup.
        """
        match = Match()
        heads = self._heads
        above = self._stack.above
        position = 0
        node: Node | None = None
        while position < count:
            found = heads.get(blocks[position])
            if found is None or found.start != position:
                break
            run = found.blocks
            end = position + len(run)
            if end > count or blocks[end - 1] != run[-1]:
                shared = common_prefix(run, blocks, position, min(end, count))
                match.forked = position + shared < count
                end = position + shared
                found = self._split(found, shared)
            conversation = found.conversation
            if conversation is not None and conversation.blocks <= end:
                match.conversation = conversation
            used = found.users > 0
            youngest: Copy = found
            if found.copies:
                match.copied = True
                used, youngest = found.used, found.youngest
            if used:
                match.add(end - position, 0.0, -1)
            elif youngest.place < 0:
                match.lost += end - position
            else:
                reuse_time = time - youngest.released
                # Only a run in use has reuse time 0; nothing else may look like one, however coarse or wrong the clock.
                if reuse_time < _INSTANT_S:
                    reuse_time = _INSTANT_S
                match.add(end - position, reuse_time, above(youngest.place, youngest.under))
            position, node = end, found
            if match.forked:
                break
        match.branched = position < count and node is not None and node.children > 0
        match.node = node
        return match

    def hold(self, node: Node | None, blocks: Sequence[Hashable], count: int) -> Node | None:
        """A request uses everything up to ``node``, in one copy each, and writes what is new of ``count`` blocks.

        Returns the deepest node, for :meth:`release`.
        """
        used = node
        while used is not None:
            if used.users == 0:
                self._take(used)
            used.users += 1
            used = used.parent
        position = 0 if node is None else node.end
        return node if position == count else self._grow(node, blocks[position:count])

    def hit(self, blocks: Sequence[Hashable], count: int, room: float) -> Node | None:
        """A request uses the first ``count`` blocks, which are remembered; returns the deepest node.

        Args:
            blocks: Chained ids.
            count: Blocks that are hit, or were evicted and are written again in their first copy's stead.
            room: Blocks of the LRU stack that are still in the cache.
        """
        node: Node | None = None
        position = 0
        while position < count:
            node = self._find(blocks, position, count)
            assert node is not None
            if node.copies:
                node = self._settle(node, room)
            if node.users == 0:
                self._take(node)
                room -= len(node.blocks)
            node.users += 1
            position = node.end
        return node

    def write(
        self, node: Node | None, blocks: Sequence[Hashable], count: int, writer: Hashable, room: float
    ) -> Node | None:
        """A request that uses everything up to ``node`` wrote its blocks up to ``count``: a copy where they are there.

        Returns the new deepest node.

        Args:
            node: The deepest node so far.
            blocks: Chained ids, at least ``count``.
            count: Blocks, from the start of the prompt.
            writer: The request.
            room: Blocks of the LRU stack that are still in the cache.
        """
        position = 0 if node is None else node.end
        while position < count:
            found = self._find(blocks, position, count)
            if found is None:
                return self._grow(node, blocks[position:count])
            node = self._settle(found, room)
            if node.used or (node.place >= 0 and self._depth(node) < room):
                node.copies += (Copy(writer),)
                self.in_use_blocks += len(node.blocks)
            else:
                self._take(node)
                node.users += 1
            position = node.end
        return node

    def release(self, node: Node | None, time: float, unhashed: int = 0, writer: Hashable = None) -> None:
        """A request released the prompt that ends at ``node``; then forget what is over the limit.

        Args:
            node: The deepest node.
            time: Seconds.
            unhashed: Blocks without a hash that queue up behind it: they displace others and serve no request.
            writer: The request.
        """
        recency, stack = self._recency, self._stack
        if unhashed:
            stack.push(unhashed)
        while node is not None:
            held: Copy = node
            if node.copies and writer is not None:
                held = next((copy for copy in node.copies if copy.writer == writer), node)
            held.writer = None
            held.released = time
            node.users -= held is node
            if held is not node or not node.users:
                size = len(node.blocks)
                held.place, held.under = stack.push(size), size
                self.in_use_blocks -= size
            recency.move_to_end(node)
            node = node.parent
        if self.blocks > self.limit_blocks:
            self._forget()
        if stack.size > self._compact_at:
            self._compact()

    def reset(self) -> None:
        """The engine dropped its cache: nothing released before can be hit any more."""
        self._stack = LRUStack()
        for node in self._recency:
            node.place = -1
            node.copies = tuple(copy for copy in node.copies if copy.writer is not None)

    @property
    def nodes(self) -> int:
        """Runs remembered."""
        return len(self._recency)

    @property
    def bytes(self) -> int:
        """Approximate memory of what is remembered."""
        return self.blocks * BYTES_PER_BLOCK + len(self._recency) * BYTES_PER_NODE

    def _grow(self, node: Node | None, new: Sequence[Hashable]) -> Node:
        """Append blocks to a prompt in use that ends at ``node``; they are in use with it."""
        added = len(new)
        self.blocks += added
        self.in_use_blocks += added
        # A leaf that only this prompt uses simply gets longer: a conversation stays one node.
        if node is not None and node.children == 0 and node.users == 1 and not node.copies:
            node.blocks.extend(new)
            return node
        start = 0 if node is None else node.end
        grown = Node(node, list(new), start, 0.0)
        grown.users = 1
        if node is not None:
            node.children += 1
        self._heads[new[0]] = grown
        self._recency[grown] = None
        return grown

    def _find(self, blocks: Sequence[Hashable], position: int, count: int) -> Node | None:
        """The node with the blocks from ``position`` on, cut off where the prompt's first ``count`` leave it."""
        found = self._heads.get(blocks[position])
        if found is None or found.start != position:
            return None
        end = found.end
        if end > count or blocks[end - 1] != found.blocks[-1]:
            found = self._split(found, common_prefix(found.blocks, blocks, position, min(end, count)))
        return found

    def _split(self, node: Node, at: int) -> Node:
        """Cut a run after ``at`` blocks, if it has more; returns the upper part."""
        if at == len(node.blocks):
            return node
        upper = node.split(at)
        self._heads[upper.blocks[0]] = upper
        self._heads[node.blocks[0]] = node
        self._recency[upper] = None
        return upper

    def _settle(self, node: Node, room: float) -> Node:
        """Of several copies, the one written first that is still in the cache comes first: a lookup returns it.

        Returns the upper part of the node where only that much is there.
        """
        while not node.users:
            left = room - self._depth(node) if node.place >= 0 else 0
            if left >= len(node.blocks):
                break
            if left > 0:
                return self._split(node, int(left))
            if not node.copies:
                break
            node.forget_first()
        return node

    def _depth(self, node: Node) -> int:
        return self._stack.above(node.place, node.under)

    def _take(self, node: Node) -> None:
        """The first copy comes into use."""
        size = len(node.blocks)
        self.in_use_blocks += size
        place = node.place
        if place >= 0:
            self._stack.take(place, size)
            node.place = -1

    def _compact(self) -> None:
        every: Iterator[Copy] = itertools.chain.from_iterable((node, *node.copies) for node in self._recency)
        placed = [each for each in every if each.place >= 0]
        self._stack, moved = self._stack.compacted((each.place for each in placed), self.limit_blocks)
        for each in placed:
            each.place = moved[each.place]
        self._compact_at = self._stack.size * 4 + _PLACES

    def _forget(self) -> None:
        recency = self._recency
        for _ in range(len(recency)):
            if self.blocks <= self.limit_blocks:
                return
            node, _ = recency.popitem(last=False)
            if node.children or node.used:
                # In use: its release will move it here anyway, so moving it now is not paid for twice.
                recency[node] = None
                continue
            self._drop(node)

    def _drop(self, node: Node) -> None:
        """A leaf without users, no longer in the order of recency."""
        self.blocks -= len(node.blocks)
        if node.place >= 0:
            self._stack.take(node.place, len(node.blocks))
        del self._heads[node.blocks[0]]
        if node.parent is not None:
            node.parent.children -= 1

"""The compressed prefix tree: which blocks of a prompt were seen before, and how long ago each was released."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from vllm_hitratio_plugin.index.lru_stack import LRUStack
from vllm_hitratio_plugin.index.match import Match
from vllm_hitratio_plugin.index.node import Node

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

    def admit(self, blocks: Sequence[Hashable], count: int, time: float) -> Match:
        """Look a prompt's first ``count`` blocks up, remember them and mark them in use until :meth:`release`.

        Args:
            blocks: Chained ids, at least ``count``.
            count: Full blocks of the prompt.
            time: Seconds, the moment of the lookup.
        """
        match = Match()
        heads = self._heads
        reuse_times, lengths, distances = match.reuse_times, match.lengths, match.distances
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
            if found.users == 0:
                if found.place < 0:
                    match.lost += end - position
                    position, node = end, found
                    continue
                reuse_time = time - found.released
                # Only a run in use has reuse time 0; nothing else may look like one, however coarse or wrong the clock.
                if reuse_time < _INSTANT_S:
                    reuse_time = _INSTANT_S
                distance = stack.above(found.place)
                joined = bool(reuse_times) and reuse_times[-1] == reuse_time and distance == distances[-1] + lengths[-1]
            else:
                reuse_time = 0.0
                distance = -1
                joined = bool(distances) and distances[-1] == -1
            blocks_here = end - position
            if joined:
                lengths[-1] += blocks_here
            else:
                reuse_times.append(reuse_time)
                lengths.append(blocks_here)
                distances.append(distance)
            match.known += blocks_here
            position, node = end, found
            if match.forked:
                break
        used = node
        while used is not None:
            if used.users == 0:
                self._use(used)
            used.users += 1
            used = used.parent
        if position < count:
            match.branched = node is not None and node.children > 0
            node = self._grow(node, blocks[position:count])
        match.node = node
        return match

    def extend(self, node: Node | None, blocks: Sequence[Hashable], count: int) -> Node | None:
        """A prompt in use grew (its answer's blocks were cached too): remember the blocks up to ``count``.

        Returns the new deepest node, in use like the old one. Blocks that another request brought are only marked.
        """
        position = 0 if node is None else node.end
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
            if found.users == 0:
                self._use(found)
            found.users += 1
            position, node = end, found
        return self._grow(node, blocks[position:count]) if position < count else node

    def release(self, node: Node | None, time: float, unhashed: int = 0) -> None:
        """A request released the prompt that ends at ``node``; then forget what is over the limit.

        Args:
            node: The deepest node.
            time: Seconds.
            unhashed: Blocks without a hash that queue up behind it: they displace others and serve no request.
        """
        recency, stack = self._recency, self._stack
        if unhashed:
            stack.push(unhashed)
        while node is not None:
            node.users -= 1
            node.released = time
            if node.users == 0:
                size = len(node.blocks)
                node.place = stack.push(size)
                self.in_use_blocks -= size
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
        while end is not None and end.end > count and not end.users and not end.children:
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
        self._stack = LRUStack()
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
        """Append blocks to a prompt in use that ends at ``node``; they are in use with it."""
        added = len(new)
        self.blocks += added
        self.in_use_blocks += added
        # A leaf that only this prompt uses simply gets longer: a conversation stays one node.
        if node is not None and node.children == 0 and node.users == 1:
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

    def _split(self, node: Node, at: int) -> Node:
        """Cut a run; the lower part keeps its identity, since requests in flight hold on to it. Returns the upper."""
        if at == len(node.blocks):
            return node
        upper = Node(node.parent, node.blocks[:at], node.start, node.released)
        upper.children = 1
        upper.users = node.users
        # The two halves share a place until the upper one is used, which is the next thing that happens to it.
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

    def _use(self, node: Node) -> None:
        size = len(node.blocks)
        self.in_use_blocks += size
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
            if node.users or node.children:
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

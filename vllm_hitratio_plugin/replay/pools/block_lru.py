"""vLLM's block pool, reimplemented: exact LRU over blocks, freed tail first."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from vllm_hitratio_plugin.replay.pools.pool import Unhashed, block_count


class _Block:
    """One physical block in use or cached."""

    __slots__ = ("content", "duplicate", "references")

    def __init__(self, content: Hashable | None) -> None:
        self.content = content  # None: partly filled, can never be found again
        self.references = 1
        self.duplicate: _Block | None = None  # the next block with the same content, in order of writing


class BlockLRU:
    """LRU over blocks that are not in use, as vLLM's ``BlockPool`` and ``KVCacheManager`` do it for full attention.

    - A prompt of L tokens hits its longest cached prefix of at most ``(L - 1) // block_size`` blocks: the last token is
      always computed. A repeated prompt of whole blocks therefore writes its last block again, as a duplicate.
    - Blocks are cached from the moment of admission and in use until the release; several prompts may use one block.
    - A release frees the last block first, so a suffix is evicted before its prefix.
    - ``unhashed`` says where the partly filled last block goes at the release (``Unhashed``).

    It agrees with the installed vLLM (``VllmPool``) hit by hit; it is what runs where vLLM is not installed, and
    faster.

    Memory: one object per block in use or cached, at most ``capacity_blocks``.
    """

    def __init__(self, capacity_blocks: int, block_size: int, unhashed: Unhashed = "head") -> None:
        if capacity_blocks < 1 or block_size < 1:
            raise ValueError(f"capacity and block size must be positive, not {capacity_blocks} and {block_size}")
        self.capacity_blocks = capacity_blocks
        self.block_size = block_size
        self._to_head = unhashed == "head"
        self._empty = capacity_blocks  # free blocks without content, all at the head of the free queue
        self._queue: OrderedDict[_Block, None] = OrderedDict()  # the rest of the free queue, next victim first
        self._cached: dict[Hashable, _Block] = {}  # content → the block written first
        self._held: dict[Hashable, list[_Block]] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks not in use, cached or empty."""
        return self._empty + len(self._queue)

    @property
    def in_use_blocks(self) -> int:
        """Blocks in use by admitted, not yet released prompts."""
        return self.capacity_blocks - self._empty - len(self._queue)

    def admit(self, key: Hashable, tokens: int, blocks: Sequence[Hashable]) -> int | None:
        """Look a prompt up, then allocate and cache it; None where it does not fit (see ``Pool.admit``)."""
        cached, queue = self._cached, self._queue
        held: list[_Block] = []
        idle = 0
        for content in blocks[: (tokens - 1) // self.block_size]:
            block = cached.get(content)
            if block is None:
                break
            held.append(block)
            idle += block.references == 0
        hit = len(held)
        new = block_count(tokens, self.block_size) - hit
        if new + idle > self.free_blocks:
            return None

        for block in held:
            if not block.references:
                del queue[block]
            block.references += 1
        self._evict(new)
        for content in blocks[hit : tokens // self.block_size]:
            block = _Block(content)
            first = cached.setdefault(content, block)
            if first is not block:
                while first.duplicate is not None:
                    first = first.duplicate
                first.duplicate = block
            held.append(block)
        if tokens % self.block_size:
            held.append(_Block(None))
        self._held[key] = held
        return hit

    def release(self, key: Hashable) -> None:
        """End the prompt: its blocks may be evicted from now on, the last one first."""
        queue = self._queue
        for block in reversed(self._held.pop(key)):
            block.references -= 1
            if not block.references:
                if block.content is None and self._to_head:
                    self._empty += 1
                else:
                    queue[block] = None

    def reset(self) -> bool:
        """Forget all cached content; False, with no effect, while blocks are in use."""
        if self._held:
            return False
        self._queue.clear()
        self._cached.clear()
        self._empty = self.capacity_blocks
        return True

    def _evict(self, count: int) -> None:
        """Take ``count`` blocks from the head of the free queue."""
        empty = min(count, self._empty)
        self._empty -= empty
        for _ in range(count - empty):
            block, _ = self._queue.popitem(last=False)
            if block.content is not None:
                self._forget(block)

    def _forget(self, block: _Block) -> None:
        first = self._cached[block.content]
        if first is block:
            if block.duplicate is None:
                del self._cached[block.content]
            else:
                self._cached[block.content] = block.duplicate
            return
        while first.duplicate is not block:
            assert first.duplicate is not None
            first = first.duplicate
        first.duplicate = block.duplicate

"""The paper's cache: whole conversations, evicted whole (Algorithm 1)."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

from vllm_hitratio_plugin.replay.pools.pool import block_count


class WholeContentLRU:
    """Algorithm 1 of the paper's appendix B.4, and its practical variant (appendix C.2).

    A conversation is named by the first block of its prompts, so prompts must not share prefixes across conversations.
    A content is resident whole or absent; a turn moves it, with size R_j, to the most recently used end; while the
    contents exceed the capacity the least recently used one is evicted, the one just written included. No block
    is ever in use and every prompt is admitted, as in the paper.

    Theory (``practical=False``): a hit serves all R_{j-1} blocks of the turn before (12).

    Practical (``practical=True``): every turn leaves one unhashable tail block. A hit serves R_{j-1} - 1 blocks (31);
    these move to the front, while the tail block keeps its place and its capacity until it gets to the end. The turn
    therefore writes R_j - (R_{j-1} - 1) blocks, as real pools do (docs/model.md#written-blocks); the paper's curve (29)
    counts one fewer.

    ``evicted`` is told the first block of every evicted content (of a tail block left behind, a name of its own).
    """

    def __init__(
        self,
        capacity_blocks: int,
        block_size: int,
        practical: bool = False,
        evicted: Callable[[Hashable], object] | None = None,
    ) -> None:
        self.capacity_blocks = capacity_blocks
        self.block_size = block_size
        self._practical = practical
        self._evicted = evicted
        self._tails = 0
        self._resident: OrderedDict[Hashable, int] = OrderedDict()  # content → blocks, least recently used first
        self._blocks = 0

    @property
    def in_use_blocks(self) -> int:
        """Always 0: the paper protects nothing."""
        return 0

    def admit(self, key: Hashable, tokens: int, blocks: Sequence[Hashable]) -> int:
        """One turn (θ, j) with content size R_j; returns the reused blocks, R_{j-1} H_j."""
        conversation = blocks[0]
        size = block_count(tokens, self.block_size)
        hit = self._resident.pop(conversation, 0)
        self._blocks -= hit
        if self._practical:
            self._tails += 1
            self._put((WholeContentLRU, self._tails), 1)
            size -= 1
        if size:
            self._put(conversation, size)
        while self._blocks > self.capacity_blocks:
            content, freed = self._resident.popitem(last=False)
            self._blocks -= freed
            if self._evicted is not None:
                self._evicted(content)
        return hit

    def release(self, key: Hashable) -> None:
        """Nothing to do: recency is set by the arrival."""

    def reset(self) -> bool:
        """Forget all contents."""
        self._resident.clear()
        self._blocks = 0
        return True

    def _put(self, content: Hashable, blocks: int) -> None:
        self._resident[content] = blocks
        self._blocks += blocks

"""What a simulation needs of a block pool."""

from collections.abc import Hashable, Sequence
from typing import Literal, Protocol

Unhashed = Literal["tail", "head"]
"""Where a partly filled block goes when its request ends: to the tail of the free queue like any other block (vLLM up
to 0.23, the paper's setting), or back to its head, to be used again at once (from 0.24 on)."""


class Pool(Protocol):
    """A prefix cache of a fixed number of blocks, without a clock.

    An admitted prompt holds its blocks until it is released.
    """

    @property
    def in_use_blocks(self) -> int:
        """Blocks in use by admitted, not yet released prompts."""
        ...

    def admit(self, key: Hashable, tokens: int, blocks: Sequence[Hashable]) -> int | None:
        """Look a prompt up, then allocate and cache it.

        ``blocks`` are chained ids: one per full block, and possibly one of the last, partly filled block, which is
        never cached. Returns the hit in blocks, or None where the prompt does not fit next to the blocks in use; the
        pool is then unchanged.
        """
        ...

    def release(self, key: Hashable) -> None:
        """End the prompt: its blocks may be evicted from now on, the last one first."""
        ...

    def reset(self) -> bool:
        """Forget all cached content; False, with no effect, while blocks are in use (as vLLM does)."""
        ...


def block_count(tokens: int, block_size: int) -> int:
    """Blocks a prompt occupies, the partly filled last one included: R_j of the paper."""
    return -(-tokens // block_size)

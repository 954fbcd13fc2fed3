"""A trace: prompts in order of time, with the chained ids of their blocks."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

MOST_TOKENS = 100_000_000
"""Of one prompt: a hundred times the longest context there is; more is an error, and would fill the memory."""


class TraceError(ValueError):
    """A trace that cannot be read; the message is one sentence that names the place."""


class Prompt(NamedTuple):
    """One prompt as it arrives."""

    time: float
    """Seconds since an origin of the trace's own."""

    tokens: int
    """Prompt tokens L, at least 1."""

    blocks: Sequence[Hashable]
    """Chained ids of the prompt's blocks, equal ids meaning equal whole prefixes: one per full block, and usually
    one more for the last, partly filled block, which is never cached."""

    conversation: str | None = None
    """Conversation id, None where the source has none."""

    output_tokens: int | None = None
    """Tokens of the answer, None where unknown."""


@dataclass(frozen=True)
class Trace:
    """Prompts sorted by time."""

    name: str
    block_size: int
    """Tokens per block of ``Prompt.blocks``."""

    prompts: Sequence[Prompt]

    real_times: bool = True
    """False where the times were drawn, not recorded."""

    empty_prompts: int = 0
    """Records of prompts without a token, left out of ``prompts``."""

    def reblocked(self, block_size: int) -> "Trace":
        """The same prompts in blocks of a multiple of this size; ``ValueError`` for any other size.

        A chained id names its whole prefix, so a large block is named by the last small block in it.
        """
        factor, rest = divmod(block_size, self.block_size)
        if rest or factor < 1:
            raise ValueError(f"blocks of {self.block_size} tokens cannot be made into blocks of {block_size}")
        if factor == 1:
            return self
        prompts = [
            prompt._replace(blocks=prompt.blocks[: prompt.tokens // self.block_size][factor - 1 :: factor])
            for prompt in self.prompts
        ]
        return replace(self, block_size=block_size, prompts=prompts)

    @property
    def duration(self) -> float:
        """Seconds from the first to the last prompt."""
        return self.prompts[-1].time - self.prompts[0].time if self.prompts else 0.0

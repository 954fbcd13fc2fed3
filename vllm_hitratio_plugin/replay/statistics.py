"""What a trace holds, whatever cache it meets."""

from collections.abc import Hashable
from dataclasses import dataclass

from vllm_hitratio_plugin.replay.pools.pool import block_count
from vllm_hitratio_plugin.replay.trace import Trace


@dataclass(frozen=True)
class TraceStatistics:
    """Sums over all prompts of a trace."""

    prompts: int
    prompt_tokens: int
    prompt_blocks: int
    """Σ R, partly filled blocks included."""

    distinct_blocks: int
    """Different full blocks: a cache of that many evicts nothing."""

    reusable_blocks: int
    """Hits of an unlimited cache."""

    conversations: int | None
    """Distinct conversation ids; None where the trace names none."""

    duration_s: float

    @property
    def reuse_ceiling(self) -> float | None:
        """Hit ratio of an unlimited cache: no capacity hits more."""
        return self.reusable_blocks / self.prompt_blocks if self.prompt_blocks else None


def trace_statistics(trace: Trace) -> TraceStatistics:
    """One pass over a trace; memory: its distinct blocks."""
    block_size = trace.block_size
    seen: set[Hashable] = set()
    names: set[str] = set()
    tokens = prompt_blocks = reusable = 0
    for prompt in trace.prompts:
        tokens += prompt.tokens
        prompt_blocks += block_count(prompt.tokens, block_size)
        full = prompt.blocks[: prompt.tokens // block_size]
        known = next((index for index, block in enumerate(full) if block not in seen), len(full))
        reusable += min(known, (prompt.tokens - 1) // block_size)
        seen.update(full[known:])
        if prompt.conversation is not None:
            names.add(prompt.conversation)
    return TraceStatistics(
        prompts=len(trace.prompts),
        prompt_tokens=tokens,
        prompt_blocks=prompt_blocks,
        distinct_blocks=len(seen),
        reusable_blocks=reusable,
        conversations=len(names) or None,
        duration_s=trace.duration,
    )

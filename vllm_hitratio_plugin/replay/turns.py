"""Conversations as lengths: what was said, without when."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vllm_hitratio_plugin.replay.pools.pool import block_count


class Turn(NamedTuple):
    """One turn of a conversation."""

    prompt_tokens: int
    """New tokens of the prompt, the history not included."""

    response_tokens: int
    """Tokens of the answer."""


Turns = Sequence[Turn]
"""One conversation, M = ``len(turns)``."""


def prompt_lengths(turns: Turns) -> list[int]:
    """Tokens of every prompt: all that was said before, and the new message.

    At least 1: recorded chats hold empty messages, and no engine takes an empty prompt.
    """
    lengths = []
    history = 0
    for turn in turns:
        history += turn.prompt_tokens
        lengths.append(max(1, history))
        history += turn.response_tokens
    return lengths


@dataclass(frozen=True)
class WorkloadMeans:
    """Sample means over conversations: equations (35) to (37) of the paper."""

    conversations: int
    history_workload: float
    """Â_R, blocks a conversation (35)."""

    hashable_reusable_workload: float
    """Â_H^hash, blocks a conversation, the paper's R_j - 1 a turn that is followed by another (36)."""

    lifetime_blocks: float
    """Ê[B], blocks (37)."""

    turns: float
    """Ê[M] (37)."""

    @property
    def reuse_potential(self) -> float:
        """h_max with hashable blocks: no cache does better."""
        return self.hashable_reusable_workload / self.history_workload


def workload_means(conversations: Iterable[Turns], block_size: int) -> WorkloadMeans:
    """Equations (35) to (37); ``ValueError`` where there is no conversation."""
    count = turns = history = reusable = lifetime = 0
    for conversation in conversations:
        if not conversation:
            continue
        sizes = [block_count(tokens, block_size) for tokens in prompt_lengths(conversation)]
        count += 1
        turns += len(sizes)
        history += sum(sizes)
        reusable += sum(sizes[:-1]) - (len(sizes) - 1)
        lifetime += sizes[-1]
    if not count:
        raise ValueError("there is no conversation to take means of")
    return WorkloadMeans(count, history / count, reusable / count, lifetime / count, turns / count)

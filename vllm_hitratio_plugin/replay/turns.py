"""Conversations as lengths: what was said, without when."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vllm_hitratio_plugin.model.conversation_sample import ConversationSample
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


def conversation_sample(conversations: Iterable[Turns], block_size: int) -> ConversationSample:
    """History sizes R_ij in blocks, from which the model takes the means (35) to (37).

    ``ValueError`` where there is no conversation, or one without turns.
    """
    return ConversationSample(
        [[block_count(tokens, block_size) for tokens in prompt_lengths(turns)] for turns in conversations]
    )

"""Conversations as turn lengths: one JSON array per line."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from vllm_hitratio_plugin.replay.formats.lines import Count, typed
from vllm_hitratio_plugin.replay.trace import MOST_TOKENS, TraceError
from vllm_hitratio_plugin.replay.turns import Turn, Turns, prompt_lengths

_Record = Annotated[list[tuple[Count, Count]], msgspec.Meta(min_length=1)]


def read_turn_lengths(source: str, records: Iterable[tuple[int, Any]]) -> list[Turns]:
    """Read [[new prompt tokens, response tokens], ...] per line; such a file has no times and no ids."""
    conversations: list[Turns] = []
    for number, value in records:
        turns = [Turn(*lengths) for lengths in typed(source, number, value, _Record)]
        if prompt_lengths(turns)[-1] > MOST_TOKENS:
            raise TraceError(
                f"{source}, line {number}: the last prompt, with all turns before it, is over {MOST_TOKENS:,} tokens"
            )
        conversations.append(turns)
    return conversations

"""Conversations as turn lengths: one JSON array per line."""

from collections.abc import Iterable
from typing import Any

from vllm_hitratio_plugin.replay.trace import MOST_TOKENS, TraceError
from vllm_hitratio_plugin.replay.turns import Turn, Turns, prompt_lengths


def read_turn_lengths(source: str, records: Iterable[tuple[int, Any]]) -> list[Turns]:
    """Read [[new prompt tokens, response tokens], ...] per line; such a file has no times and no ids."""
    return [_conversation(f"{source}, line {number}", record) for number, record in records]


def _conversation(place: str, record: Any) -> Turns:
    if not isinstance(record, list) or not record:
        raise TraceError(f"{place}: a non-empty array of turns is expected")
    turns = []
    for turn in record:
        if not (isinstance(turn, list) and len(turn) == 2 and all(type(value) is int and value >= 0 for value in turn)):
            raise TraceError(
                f"{place}: a turn must be [new prompt tokens, response tokens], two integers of at least 0"
            )
        turns.append(Turn(*turn))
    if prompt_lengths(turns)[-1] > MOST_TOKENS:
        raise TraceError(f"{place}: the last prompt, all turns before it included, is over {MOST_TOKENS:,} tokens")
    return turns

"""A trace file of any known format."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal, get_args

from vllm_hitratio_plugin.replay.formats.lines import Lines, parse_json
from vllm_hitratio_plugin.replay.formats.lmcache import read_lmcache
from vllm_hitratio_plugin.replay.formats.mooncake import read_mooncake
from vllm_hitratio_plugin.replay.formats.turn_lengths import read_turn_lengths
from vllm_hitratio_plugin.replay.trace import Trace, TraceError
from vllm_hitratio_plugin.replay.turns import Turns

Format = Literal["auto", "mooncake", "lmcache", "turn-lengths"]
"""Of a trace file; 'auto' is told by the first line."""

FORMATS: tuple[Format, ...] = get_args(Format)


def read_source(path: str, kind: Format = "auto", block_size: int | None = None) -> Trace | list[Turns]:
    """Read a file, gzip or not, or standard input ('-').

    Recorded prompts come back as a ``Trace``; turn lengths, which have no times, as conversations for the generator. A
    ``block_size`` larger than the trace's own joins its blocks.

    Raises ``TraceError`` with one sentence naming the line; nothing malformed is skipped.
    """
    lines = Lines(path)
    records = ((number, parse_json(lines.name, number, line)) for number, line in lines)
    first = next(records, None)
    if first is None:
        raise TraceError(f"{lines.name}: there is nothing in it")
    all_records: Iterator[tuple[int, Any]] = chain((first,), records)
    if kind == "auto":
        kind = _kind(lines.name, *first)
    if kind == "turn-lengths":
        return read_turn_lengths(lines.name, all_records)
    trace = (
        read_mooncake(lines.name, all_records, block_size)
        if kind == "mooncake"
        else read_lmcache(lines.name, all_records)
    )
    if block_size is None or block_size == trace.block_size:
        return trace
    try:
        return trace.reblocked(block_size)
    except ValueError as error:
        raise TraceError(f"{lines.name}: {error}") from None


def _kind(name: str, number: int, record: Any) -> Format:
    if isinstance(record, dict) and "hash_ids" in record:
        return "mooncake"
    if isinstance(record, dict) and {"t", "in", "h"} <= record.keys():
        return "lmcache"
    if isinstance(record, list) and record and isinstance(record[0], list):
        return "turn-lengths"
    raise TraceError(f"{name}, line {number}: no known trace format (known are {', '.join(FORMATS[1:])})")

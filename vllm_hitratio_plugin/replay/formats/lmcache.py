"""LMCache's agent traces, with texts replaced by block ids."""

from collections.abc import Iterable
from typing import Any

import msgspec

from vllm_hitratio_plugin.replay.formats.lines import Count, Name, Seconds, Tokens, typed
from vllm_hitratio_plugin.replay.trace import Prompt, Trace, TraceError

_BLOCK_SIZE = 64


class _Record(msgspec.Struct):
    time: Seconds = msgspec.field(name="t")
    tokens: Tokens = msgspec.field(name="in")
    runs: list[tuple[Count, Count]] = msgspec.field(name="h")
    kind: Name = None
    conversation: Name = msgspec.field(name="conv", default=None)
    output_tokens: Count | None = msgspec.field(name="out", default=None)


def read_lmcache(source: str, records: Iterable[tuple[int, Any]]) -> Trace:
    """Read ``kind``, ``conv``, ``t`` [unix s], ``in``, ``out`` [tokens], ``h`` = [[first id, number of ids], ...].

    The ids are those of full blocks only. Times are made relative to the first prompt. Some recorded calls have no
    input at all; they are counted in ``Trace.empty_prompts``, for no engine takes an empty prompt.
    """
    prompts = []
    empty = 0
    for number, value in records:
        record = typed(source, number, value, _Record)
        full = sum(length for _, length in record.runs)
        if full != record.tokens // _BLOCK_SIZE:
            raise TraceError(
                f"{source}, line {number}: {full} full blocks of {_BLOCK_SIZE} do not go with {record.tokens} tokens"
            )
        if not record.tokens:
            empty += 1
            continue
        names = [str(name) for name in (record.kind, record.conversation) if name is not None]
        prompts.append(
            Prompt(
                time=record.time,
                tokens=record.tokens,
                blocks=[block for first, length in record.runs for block in range(first, first + length)],
                conversation=None if record.conversation is None else "/".join(names),
                output_tokens=record.output_tokens,
            )
        )
    prompts.sort(key=lambda prompt: prompt.time)
    origin = prompts[0].time if prompts else 0.0
    return Trace(
        name=source,
        block_size=_BLOCK_SIZE,
        prompts=[prompt._replace(time=prompt.time - origin) for prompt in prompts],
        empty_prompts=empty,
    )

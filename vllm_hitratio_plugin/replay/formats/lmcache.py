"""LMCache's agent traces, with texts replaced by block ids."""

from collections.abc import Iterable
from typing import Any

from vllm_hitratio_plugin.replay.formats.fields import Fields
from vllm_hitratio_plugin.replay.trace import Prompt, Trace, TraceError

_BLOCK_SIZE = 64


def read_lmcache(source: str, records: Iterable[tuple[int, Any]]) -> Trace:
    """Read ``kind``, ``conv``, ``t`` [unix s], ``in``, ``out`` [tokens], ``h`` = [[first id, number of ids], ...].

    The ids are those of full blocks only. Times are made relative to the first prompt. Some recorded calls have no
    input at all; they are counted in ``Trace.empty_prompts``, for no engine takes an empty prompt.
    """
    prompts = []
    empty = 0
    for number, record in records:
        fields = Fields(source, number, record)
        tokens = fields.tokens("in")
        runs = fields.array("h")
        if not all(_is_run(run) for run in runs):
            raise TraceError(f"{fields.place}: 'h' must hold pairs [first id, number of ids], integers of at least 0")
        full = sum(length for _, length in runs)
        if full != tokens // _BLOCK_SIZE:
            raise TraceError(f"{fields.place}: {full} full blocks of {_BLOCK_SIZE} do not go with {tokens} tokens")
        if not tokens:
            empty += 1
            continue
        kind = fields.optional_id("kind")
        conversation = fields.optional_id("conv")
        prompts.append(
            Prompt(
                time=fields.number("t"),
                tokens=tokens,
                blocks=[block for first, length in runs for block in range(first, first + length)],
                conversation=conversation if conversation is None or kind is None else f"{kind}/{conversation}",
                output_tokens=fields.optional_count("out"),
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


def _is_run(run: Any) -> bool:
    return isinstance(run, list) and len(run) == 2 and all(type(value) is int and value >= 0 for value in run)

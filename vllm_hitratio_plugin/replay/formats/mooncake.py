"""Mooncake's JSONL traces, the common format."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from vllm_hitratio_plugin.replay.formats.lines import Count, Name, Seconds, typed
from vllm_hitratio_plugin.replay.pools.pool import block_count
from vllm_hitratio_plugin.replay.trace import MOST_TOKENS, Prompt, Trace, TraceError


class _Record(msgspec.Struct):
    timestamp: Seconds
    """Milliseconds."""
    input_length: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
    hash_ids: Annotated[list[int | str], msgspec.Meta(min_length=1)]
    session_id: Name = None
    chat_id: Name = None
    output_length: Count | None = None


def read_mooncake(source: str, records: Iterable[tuple[int, Any]], block_size: int | None = None) -> Trace:
    """Read ``timestamp`` [ms], ``input_length`` [tokens], ``hash_ids``.

    Optional are ``session_id`` or ``chat_id``, and ``output_length`` [tokens]. ``hash_ids`` has one id per block, the
    last block usually being partly filled: ``ceil(input_length / block_size)`` of them. The block size is written
    nowhere in such a file. Every line leaves an interval of sizes that its two lengths allow; the size is taken from
    what all lines have in common, ``block_size`` if that is among it. Raises ``TraceError`` at the first line that
    agrees with none of the sizes left.
    """
    low, high = 1, None
    prompts = []
    for number, value in records:
        record = typed(source, number, value, _Record)
        tokens, blocks = record.input_length, record.hash_ids
        line_low, line_high = _sizes(tokens, len(blocks))
        new_low = max(low, line_low)
        new_high = line_high if high is None else high if line_high is None else min(high, line_high)
        if new_high is not None and new_low > new_high:
            allowed = f"{low}" if low == high else f"{low} to {high}" if high is not None else f"{low} or more"
            raise TraceError(
                f"{source}, line {number}: {len(blocks)} hash_ids for {tokens} tokens do not go with blocks of "
                f"{allowed} tokens"
            )
        low, high = new_low, new_high
        name = record.chat_id if record.session_id is None else record.session_id
        conversation = None if name is None else str(name)
        prompts.append(Prompt(record.timestamp / 1000, tokens, blocks, conversation, record.output_length))
    prompts.sort(key=lambda prompt: prompt.time)
    size = _preferred(low, high, block_size)
    assert all(len(prompt.blocks) == block_count(prompt.tokens, size) for prompt in prompts)
    return Trace(name=source, block_size=size, prompts=prompts)


def _sizes(tokens: int, blocks: int) -> tuple[int, int | None]:
    """Least and largest b with ceil(tokens / b) = blocks; the least exceeds the largest where there is none."""
    return -(-tokens // blocks), None if blocks == 1 else -(-tokens // (blocks - 1)) - 1


def _preferred(low: int, high: int | None, wanted: int | None) -> int:
    """The size to take of those allowed: the wanted one, else the least power of two, else the least."""
    if wanted is not None and wanted >= low and (high is None or wanted <= high):
        return wanted
    power = 1 << (low - 1).bit_length()
    return power if high is None or power <= high else low

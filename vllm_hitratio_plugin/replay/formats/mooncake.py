"""Mooncake's JSONL traces, the common format."""

from collections.abc import Iterable
from typing import Any

from vllm_hitratio_plugin.replay.formats.fields import Fields
from vllm_hitratio_plugin.replay.pools.pool import block_count
from vllm_hitratio_plugin.replay.trace import Prompt, Trace, TraceError


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
    for number, record in records:
        fields = Fields(source, number, record)
        tokens = fields.tokens("input_length", minimum=1)
        blocks = fields.ids("hash_ids")
        if not blocks:
            raise TraceError(f"{fields.place}: 'hash_ids' is empty for a prompt of {tokens} tokens")
        line_low, line_high = _sizes(tokens, len(blocks))
        new_low = max(low, line_low)
        new_high = line_high if high is None else high if line_high is None else min(high, line_high)
        if new_high is not None and new_low > new_high:
            allowed = f"{low}" if low == high else f"{low} to {high}" if high is not None else f"{low} or more"
            raise TraceError(
                f"{fields.place}: {len(blocks)} hash_ids for {tokens} tokens do not go with blocks of {allowed} tokens"
            )
        low, high = new_low, new_high
        prompts.append(
            Prompt(
                time=fields.number("timestamp") / 1000,
                tokens=tokens,
                blocks=blocks,
                conversation=fields.optional_id("session_id", "chat_id"),
                output_tokens=fields.optional_count("output_length"),
            )
        )
    prompts.sort(key=lambda prompt: prompt.time)
    size = _preferred(low, high, block_size)
    assert all(len(prompt.blocks) == block_count(prompt.tokens, size) for prompt in prompts)
    return Trace(name=source, block_size=size, prompts=prompts)


def _sizes(tokens: int, blocks: int) -> tuple[int, int | None]:
    """Least and largest b with ceil(tokens / b) = blocks; the least exceeds the largest where there is none."""
    return -(-tokens // blocks), None if blocks == 1 else -(-tokens // (blocks - 1)) - 1


def _preferred(low: int, high: int | None, wanted: int | None) -> int:
    """The size to take of those allowed: the wanted one, else the least power of two, for block sizes are; else the
    least."""
    if wanted is not None and wanted >= low and (high is None or wanted <= high):
        return wanted
    power = 1 << (low - 1).bit_length()
    return power if high is None or power <= high else low

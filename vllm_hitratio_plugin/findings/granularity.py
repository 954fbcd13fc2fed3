"""Blocks are large beside the prompts: what does not fill a block can't be hit."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, percent, points
from vllm_hitratio_plugin.snapshot import Snapshot

_NOTABLE = 0.15
_BAD = 0.30
#: Prompts that can never hit are worth a word from this share on, if they carry any weight.
_SHORT = 0.10
_WEIGHT = 0.02


def granularity(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires by the share of prompt blocks that are the last, partly filled one (or hold the last token)."""
    partial = traffic.share("partial", "tail")
    block, counters = snapshot.block_size, traffic.counters
    short = counters.requests > 0 and counters.short_prompts >= _SHORT * counters.requests and partial >= _WEIGHT
    if partial < _NOTABLE and not short:
        return None
    evidence = [
        f"{percent(partial)} of the prompt blocks {traffic.window} are the last one of their prompt, which is never "
        f"served from the cache: that costs up to {points(partial)} of hit ratio, whatever the capacity.",
    ]
    if counters.requests:
        mean = counters.prompt_tokens / counters.requests
        evidence.append(
            f"A block holds {block:,} tokens, a prompt {mean:,.0f} on average; a prompt of L tokens can hit at most "
            f"floor((L - 1) / {block:,}) blocks."
        )
    if counters.short_prompts:
        evidence.append(
            f"{count(counters.short_prompts, 'prompt')} of {counters.requests:,} "
            f"({percent(counters.short_prompts / counters.requests)}) "
            f"{traffic.since} had at most {block:,} tokens: 0 by design below one block, the cache is not broken."
        )
    return Finding(
        rule="granularity-bound",
        severity="warning" if partial >= _BAD else "info",
        confidence=0.95,
        summary=f"The block size of {block:,} tokens is coarse for these prompts: shared prefixes are cut down to "
        "whole blocks.",
        evidence=tuple(evidence),
        causes=(
            "Prompts are short beside the block size.",
            "A hybrid model or a backend (128 on Ascend) that dictates large blocks.",
        ),
        actions=(
            f"Lower --block-size if the attention backend allows it: at {max(block // 2, 1):,} tokens this loss is "
            "roughly halved.",
            "Put what prompts share first and what differs last, so that whole blocks are shared.",
        ),
        metrics=(
            'hitratio_prompt_blocks_by_outcome_total{outcome="partial"}',
            "hitratio_short_prompts_total",
            "hitratio_block_size_tokens",
        ),
        # Half of such a block is filled on average.
        loss=partial / 2,
    )

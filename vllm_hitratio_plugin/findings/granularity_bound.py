"""Blocks are large for these prompts: what does not fill a block can't hit."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent, points

_NOTABLE = 0.15
_BAD = 0.30
#: Prompts that can never hit are mentioned from this share on, if they carry any weight.
_SHORT = 0.10
_WEIGHT = 0.02


def granularity_bound(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the share of prompt blocks that are partly filled or hold the last token."""
    partial = period.share("partial", "tail")
    block, counters = snapshot.block_size, period.counters
    short = counters.requests > 0 and counters.short_prompts >= _SHORT * counters.requests and partial >= _WEIGHT
    if partial < _NOTABLE and not short:
        return None
    evidence = [
        f"{percent(partial)} of the prompt blocks {period.window} are the last one of their prompt, which vLLM never "
        f"serves from the cache. That costs up to {points(partial)} of hit ratio at any capacity.",
    ]
    if counters.requests:
        mean = counters.prompt_tokens / counters.requests
        evidence.append(
            f"A block holds {block:,} tokens, a prompt {mean:,.0f} on average. A prompt of L tokens hits at most "
            f"floor((L - 1) / {block:,}) blocks."
        )
    if counters.short_prompts:
        evidence.append(
            f"{count(counters.short_prompts, 'prompt')} of {counters.requests:,} "
            f"({percent(counters.short_prompts / counters.requests)}) {period.since} had at most {block:,} tokens. "
            "Such prompts never hit, by design; the cache is not broken."
        )
    return Finding(
        rule="granularity-bound",
        severity="warning" if partial >= _BAD else "info",
        confidence=0.95,
        summary=f"The block size of {block:,} tokens is coarse for these prompts: only whole blocks of a shared prefix "
        "can hit.",
        evidence=tuple(evidence),
        causes=(
            "The prompts are short compared with a block.",
            "A hybrid model or the attention backend (128 tokens on Ascend) requires large blocks.",
        ),
        actions=(
            f"Lower --block-size if the attention backend allows it. At {max(block // 2, 1):,} tokens, this loss is "
            "roughly halved.",
            "Put what prompts share first and what differs last, so that they share whole blocks.",
        ),
        metrics=(
            'hitratio_prompt_blocks_by_outcome_total{outcome="partial"}',
            "hitratio_short_prompts_total",
            "hitratio_block_size_tokens",
        ),
        # Such a block is half full on average.
        loss=partial / 2,
    )

"""A block is larger than any prompt."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot


def block_too_large(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires from the first moment, without traffic: a hit needs one full block and one more token."""
    longest, block = snapshot.max_model_len, snapshot.match_unit or snapshot.block_size
    if longest is None or block < longest:
        return None
    if snapshot.counters is not None and snapshot.counters.hit_tokens:
        # It hits in smaller units, and the page is of a version that does not say so.
        return None
    return Finding(
        rule="block-too-large",
        severity="critical",
        confidence=1.0,
        summary=f"Nothing can ever hit: a block holds {block:,} tokens and the longest request allowed has "
        f"{longest:,}.",
        evidence=(
            f"A prompt of L tokens hits at most floor((L - 1) / {block:,}) blocks. With L up to {longest:,} that is 0.",
            "The cache is not broken, and more memory changes nothing.",
        ),
        causes=(
            "--block-size is too large for --max-model-len.",
            "For a hybrid model, vLLM raises the block size until attention and Mamba pages have the same size.",
        ),
        actions=("Lower --block-size. Or raise --max-model-len, if longer prompts are to be served.",),
        metrics=("hitratio_block_size_tokens", "hitratio_max_model_length_tokens", "hitratio_short_prompts_total"),
        loss=1.0,
    )

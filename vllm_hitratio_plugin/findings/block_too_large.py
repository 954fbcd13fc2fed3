"""A block is larger than any prompt."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.snapshot import Snapshot


def block_too_large(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires from the first moment, without traffic: a hit takes one full block and one more token."""
    longest, block = snapshot.max_model_len, snapshot.block_size
    if longest is None or block < longest:
        return None
    return Finding(
        rule="block-too-large",
        severity="critical",
        confidence=1.0,
        summary=f"Nothing can ever hit: a block holds {block:,} tokens and the longest request allowed has "
        f"{longest:,}.",
        evidence=(
            f"A prompt hits floor((L - 1) / {block:,}) blocks; with L at most {longest:,} that is 0.",
            "The cache is not broken, and more memory changes nothing.",
        ),
        causes=(
            "--block-size is too large for --max-model-len.",
            "A hybrid model: vLLM raises the block size until attention and Mamba pages are of one size.",
        ),
        actions=("Lower --block-size, or raise --max-model-len if longer prompts are meant to be served.",),
        metrics=("hitratio_block_size_tokens", "hitratio_max_model_length_tokens", "hitratio_short_prompts_total"),
        loss=1.0,
    )

"""The model does not cover this kind of cache."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import percent


def not_modelled(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires for hybrid and sliding-window caches, which have observed figures only."""
    if snapshot.modelled:
        return None
    counters = period.counters
    evidence = [snapshot.degraded.get("not_modelled", "The cache is not one group of full-attention layers")]
    if counters.prompt_tokens:
        evidence.append(
            f"The cache served {percent(counters.hit_tokens / counters.prompt_tokens)} of {counters.prompt_tokens:,} "
            f"prompt tokens {period.since}."
        )
    return Finding(
        rule="not-modelled",
        severity="info",
        confidence=1.0,
        summary="The hit ratio is observed but not predicted: one LRU of blocks does not describe this model's cache.",
        evidence=tuple(evidence),
        causes=("The model mixes kinds of attention (sliding window, Mamba). Each has its own blocks and rules.",),
        actions=("Use the observed figures. Do not plan a capacity for this model with this tool.",),
        metrics=(
            "hitratio_hit_tokens_total",
            "hitratio_prompt_tokens_total",
            'hitratio_degraded{reason="not_modelled"}',
        ),
    )

"""The cache is of a kind that the model does not cover."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import percent
from vllm_hitratio_plugin.snapshot import Snapshot


def not_modelled(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires for hybrid and sliding-window caches: observed figures only."""
    if snapshot.modelled:
        return None
    counters = traffic.counters
    evidence = [snapshot.degraded.get("not_modelled", "The cache is not one group of full-attention layers")]
    if counters.prompt_tokens:
        evidence.append(
            f"{percent(counters.hit_tokens / counters.prompt_tokens)} of {counters.prompt_tokens:,} prompt tokens were "
            f"served from the cache {traffic.since}."
        )
    return Finding(
        rule="not-modelled",
        severity="info",
        confidence=1.0,
        summary="The hit ratio is observed but not explained: one LRU of blocks does not describe this model's cache.",
        evidence=tuple(evidence),
        causes=("The model mixes kinds of attention (sliding window, Mamba), each with blocks and rules of its own.",),
        actions=("Read the observed figures; take no capacity from this tool for this model.",),
        metrics=(
            "hitratio_hit_tokens_total",
            "hitratio_prompt_tokens_total",
            'hitratio_degraded{reason="not_modelled"}',
        ),
    )

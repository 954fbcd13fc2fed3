"""A KV connector serves a part of the prompts: a second tier, or a prefiller."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import percent

_NOTABLE = 0.005


def second_tier(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the share of prompt tokens that a connector loaded."""
    counters = period.counters
    if not counters.external_hit_tokens or counters.external_hit_tokens < _NOTABLE * counters.prompt_tokens:
        return None
    local = counters.hit_tokens / counters.prompt_tokens
    external = min(counters.external_hit_tokens / counters.prompt_tokens, 1 - local)
    evidence = [
        f"Of {counters.prompt_tokens:,} prompt tokens {period.since}, {percent(local)} were hits in the local cache "
        f"and {percent(external)} were loaded by the connector.",
    ]
    if period.prompt_blocks:
        evidence.append(
            f"Of the prompt blocks {period.window}, {percent(period.share('capacity'))} were evicted from the local "
            f"cache and not loaded either, {percent(period.share('compulsory'))} were new, "
            f"{percent(period.share('partial'))} partial."
        )
    if snapshot.modelled:
        evidence.append(
            "Prediction, ceiling and curve are of the local cache. A block that it evicts and the tier serves is no "
            "local hit, but it is not computed again either."
        )
    return Finding(
        rule="second-tier",
        severity="info",
        confidence=1.0,
        summary=f"{percent(local + external)} of the prompt tokens are served: {percent(local)} by the local cache, "
        f"{percent(external)} by the tier behind its KV connector. The tier is there and works.",
        evidence=tuple(evidence),
        causes=("A KV connector loads from host memory, from a store, or from a prefiller.",),
        actions=(
            "Judge this engine by what both serve together. More local memory only replaces loads by local hits.",
        ),
        metrics=("hitratio_external_hit_tokens_total", "hitratio_hit_tokens_total", "hitratio_prompt_tokens_total"),
    )

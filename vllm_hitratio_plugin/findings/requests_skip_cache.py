"""Requests that may not read the prefix cache."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent

#: Of all requests.
_NOTABLE = 0.05


def requests_skip_cache(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the share of requests that skip the lookup."""
    skipped, counted = period.counters.skipped, period.counters.requests
    if skipped <= 0 or skipped < _NOTABLE * (skipped + counted):
        return None
    return Finding(
        rule="requests-skip-cache",
        severity="info",
        confidence=1.0,
        summary=f"{count(skipped, 'request')} of {skipped + counted:,} {period.since} "
        f"({percent(skipped / (skipped + counted))}) skipped the lookup in the prefix cache, by design.",
        evidence=(
            "They need a result for every prompt token, so vLLM computes all of them. The cache is not broken.",
            "They are in no hit ratio, neither the plugin's nor vLLM's. Later requests can hit the blocks they leave.",
        ),
        causes=(
            "Clients ask for prompt_logprobs.",
            "Pooling by token (token_embed, token_classify) needs every token.",
        ),
        actions=("Leave prompt_logprobs out where it is not needed. Otherwise there is nothing to do.",),
        metrics=("hitratio_skipped_requests_total", "hitratio_requests_total"),
    )

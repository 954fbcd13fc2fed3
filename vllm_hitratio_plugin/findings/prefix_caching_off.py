"""Prefix caching is off."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot

PREFIX_CACHING_OFF = Finding(
    rule="prefix-caching-off",
    severity="critical",
    confidence=1.0,
    summary="Prefix caching is off, so the engine computes every prompt from its first token.",
    evidence=("The engine reports enable_prefix_caching=False. There is no hit ratio to measure; it is not 0.",),
    causes=(
        "The server was started with --no-enable-prefix-caching.",
        "vLLM turned it off for this model (some pooling, hybrid or multimodal models) and says so in its log.",
    ),
    actions=("Restart with --enable-prefix-caching, then check in the log that vLLM keeps it on.",),
    metrics=('hitratio_degraded{reason="prefix_caching_off"}', "vllm:cache_config_info"),
)


def prefix_caching_off(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where the engine says so, never because a ratio is 0."""
    return PREFIX_CACHING_OFF if "prefix_caching_off" in snapshot.degraded else None

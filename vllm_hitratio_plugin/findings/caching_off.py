"""Prefix caching is off."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.snapshot import Snapshot


def caching_off(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where the engine says so, never because a ratio is 0."""
    if "prefix_caching_off" not in snapshot.degraded:
        return None
    return off()


def off() -> Finding:
    """The finding itself, for pages without the plugin, too."""
    return Finding(
        rule="prefix-caching-off",
        severity="critical",
        confidence=1.0,
        summary="Prefix caching is switched off, so every prompt is computed from its first token.",
        evidence=("The engine reports enable_prefix_caching=False; a hit ratio is not measured, it is not 0.",),
        causes=(
            "The server was started with --no-enable-prefix-caching.",
            "vLLM turned it off for this model (some pooling, hybrid or multimodal models) and says so in its log.",
        ),
        actions=("Restart with --enable-prefix-caching and look in the log whether vLLM takes it back.",),
        metrics=('hitratio_degraded{reason="prefix_caching_off"}', "vllm:cache_config_info"),
    )

"""A part of the plugin does not work."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot

#: These have findings of their own.
_ELSEWHERE = ("prefix_caching_off", "not_modelled")


def plugin_degraded(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where a degradation may make other findings stale or incomplete."""
    reasons = {reason: words for reason, words in snapshot.degraded.items() if reason not in _ELSEWHERE}
    if not reasons:
        return None
    return Finding(
        rule="plugin-degraded",
        severity="warning",
        confidence=1.0,
        summary=f"The plugin is degraded ({', '.join(sorted(reasons))}): its figures may be stale or too low. "
        "Serving is not affected.",
        evidence=tuple(f"{reason}: {words}." for reason, words in sorted(reasons.items())),
        causes=("An invalid setting, a port in use, a full disk, or a vLLM version that the plugin does not support.",),
        actions=("Look in vLLM's log for lines that start with 'hitratio:'. Each says what to change.",),
        metrics=("hitratio_degraded", "hitratio_last_fit_timestamp_seconds"),
    )

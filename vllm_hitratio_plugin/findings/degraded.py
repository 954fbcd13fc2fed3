"""Something keeps the plugin from its work."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.snapshot import Snapshot

#: Findings of their own.
_ELSEWHERE = ("prefix_caching_off", "not_modelled")


def degraded(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where what else is said here may be stale or incomplete."""
    reasons = {reason: words for reason, words in snapshot.degraded.items() if reason not in _ELSEWHERE}
    if not reasons:
        return None
    return Finding(
        rule="plugin-degraded",
        severity="warning",
        confidence=1.0,
        summary=f"The plugin is not whole ({', '.join(sorted(reasons))}), so figures below may be stale or too low; "
        "serving is not touched by it.",
        evidence=tuple(f"{reason}: {words}." for reason, words in sorted(reasons.items())),
        causes=(
            "A setting that can't be used, a port that is taken, a full disk, or a vLLM that changed under the plugin.",
        ),
        actions=("Read vLLM's log for lines that start with 'hitratio:'; each says what would be right.",),
        metrics=("hitratio_degraded", "hitratio_last_fit_timestamp_seconds"),
    )

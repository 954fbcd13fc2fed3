"""A part of the plugin does not work."""

from collections.abc import Sequence

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.settings import DEFAULT_PORT
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


def server_degraded(reasons: Sequence[str], figures: Sequence[str] = ()) -> Finding:
    """An API server says that the plugin is on and degraded, and shows none of its engines.

    Args:
        reasons: Of ``hitratio_degraded``.
        figures: What vLLM's own metrics say, in sentences.
    """
    return Finding(
        rule="plugin-degraded",
        severity="warning",
        confidence=1.0,
        summary=f"The plugin is on, but degraded ({', '.join(reasons)}): no figures of this engine reach this page. "
        "Serving is not affected.",
        evidence=(*(_SERVER[reason] for reason in reasons if reason in _SERVER), *figures),
        causes=(
            "The engine can't write its snapshots: a full disk, or a folder (HITRATIO_SNAPSHOT_DIR) of another user.",
            "The engine runs on another node. A page shows the engines of its own node.",
            "The engine has ended, or the plugin could not start in it.",
        ),
        actions=(
            "Look in vLLM's log for lines that start with 'hitratio:'. Each says what to change.",
            f"Ask the engine's exporter on its machine: port {DEFAULT_PORT}, or the next free one.",
        ),
        metrics=("hitratio_degraded",),
    )


_SERVER = {
    "snapshot": "snapshot: the API server finds no recent snapshot of any engine.",
    "collector": "collector: the API server can't show what it finds.",
}

"""The traffic changed, and with it the predicted hit ratio."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import points

_NOTABLE = 0.02

_FACTORS = {
    "arrival_rate": "the arrival rate of conversations",
    "conversation_size": "the length of conversations",
    "reuse_times": "the reuse times",
    "reusable_share": "the share of prompts that repeats",
    "blocks_in_use": "the blocks in use",
}


def traffic_changed(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where a factor of the traffic moved beyond its noise and the predicted ratio with it."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or not estimate.drift_significant:
        return None
    change = sum(estimate.drift_contributions.values())
    if abs(change) < _NOTABLE:
        return None
    parts = sorted(estimate.drift_contributions.items(), key=lambda item: -abs(item[1]))
    # A significant factor may also have worked against the change.
    main = next(
        (name for name in estimate.drift_significant if estimate.drift_contributions.get(name, 0.0) * change > 0), None
    )
    reason = "" if main is None else f", mainly because of {_FACTORS.get(main, main)}"
    return Finding(
        rule="traffic-changed",
        severity="info",
        confidence=0.85,
        summary=f"The predicted hit ratio {'rose' if change > 0 else 'fell'} by {points(abs(change))} since the window "
        f"before{reason}. The traffic changed, not the engine.",
        evidence=(
            "Contributions: "
            + ", ".join(f"{100 * part:+.1f} points from {_FACTORS.get(name, name)}" for name, part in parts)
            + f". Their sum is {100 * change:+.1f}.",
        ),
        causes=(
            "A client, a template or a model version was rolled out; a batch job began or ended; the time of day.",
        ),
        actions=("Find on the dashboard what started at that time. Judge the capacity again if the change stays.",),
        metrics=(
            "hitratio_drift_contribution_ratio",
            "hitratio_drift_significant",
            "hitratio_conversation_arrival_rate",
        ),
        loss=max(-change, 0.0),
    )

"""The traffic changed, and the hit ratio with it."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import points
from vllm_hitratio_plugin.snapshot import Snapshot

_NOTABLE = 0.02

_FACTORS = {
    "arrival_rate": "the rate of new conversations",
    "conversation_size": "the length of conversations",
    "reuse_times": "the pauses before content is used again",
    "reusable_share": "how much of the prompts repeats",
    "blocks_in_use": "the blocks that running requests hold",
}


def traffic_changed(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where a factor of the traffic moved beyond its noise and took the predicted ratio with it."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or not estimate.drift_significant:
        return None
    change = sum(estimate.drift_contributions.values())
    if abs(change) < _NOTABLE:
        return None
    main = estimate.drift_significant[0]
    parts = sorted(estimate.drift_contributions.items(), key=lambda item: -abs(item[1]))
    return Finding(
        rule="traffic-changed",
        severity="info",
        confidence=0.85,
        summary=f"The hit ratio {'rose' if change > 0 else 'fell'} by {points(abs(change))} since the window before, "
        "first of "
        f"all because {_FACTORS.get(main, main)} changed: the traffic moved, not the engine.",
        evidence=(
            "Parts of the change: "
            + ", ".join(f"{100 * part:+.1f} points from {_FACTORS.get(name, name)}" for name, part in parts)
            + f"; they add up to {100 * change:+.1f}.",
        ),
        causes=(
            "A client, a template or a model version was rolled out; a batch job began or ended; day turned to night.",
        ),
        actions=("Find what started at that time on the dashboard; judge the capacity again if it stays.",),
        metrics=(
            "hitratio_drift_contribution_ratio",
            "hitratio_drift_significant",
            "hitratio_conversation_arrival_rate",
        ),
        loss=max(-change, 0.0),
    )

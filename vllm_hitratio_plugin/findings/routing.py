"""Turns of one conversation are served by different engines."""

from collections.abc import Sequence

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, percent
from vllm_hitratio_plugin.snapshot import Snapshot

_LEAST_TURNS = 20
_NOTABLE = 0.05
_BAD = 0.10
_METRICS = ("hitratio_follow_up_turns_unmatched_total", "hitratio_follow_up_turns_total")
_ACTIONS = (
    "Route by conversation: session affinity, a consistent hash of the conversation's id, or a prefix-aware router.",
    "If load must be spread, let the replicas share KV (a second tier) instead.",
)


def routing(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where clients say "turn 5" and this engine has not seen turn 4.

    One engine can't know more than that: without turn numbers, a history served elsewhere and a long first prompt look
    the same.
    """
    later, elsewhere = traffic.counters.follow_up_turns, traffic.counters.unmatched_turns
    if later < _LEAST_TURNS or elsewhere < _NOTABLE * later:
        return None
    share = elsewhere / later
    return Finding(
        rule="routing-loss",
        severity="warning" if share >= _BAD else "info",
        # A young engine has not seen what came before its start.
        confidence=0.9 if traffic.seconds is not None else 0.7,
        summary=f"Reuse is lost to routing: {percent(share)} of later turns come to an engine that did not serve the "
        "turn before.",
        evidence=(
            f"Of {count(later, 'prompt')} {traffic.since} whose client sent a turn number above 1, {elsewhere:,} "
            "continue a "
            "turn that this engine has not seen.",
            f"{percent(traffic.share('cold', 'new'))} of the prompt blocks {traffic.window} were new to this engine; "
            "part of "
            "them lies in another replica's cache.",
        ),
        causes=(
            "A round-robin or least-loaded balancer in front of several replicas.",
            "Replicas were added, removed or restarted, and conversations moved.",
        ),
        actions=_ACTIONS,
        metrics=_METRICS,
        loss=share * traffic.share("compulsory", "new"),
    )


def fleet_routing(snapshots: Sequence[Snapshot]) -> Finding | None:
    """The same over all engines of one model: with random routing over R engines, 1 - 1/R of the later turns move."""
    counted = [snapshot.counters for snapshot in snapshots if snapshot.counters is not None]
    engines = len(counted)
    later = sum(counters.follow_up_turns for counters in counted)
    elsewhere = sum(counters.unmatched_turns for counters in counted)
    if engines < 2 or later < _LEAST_TURNS or elsewhere < _NOTABLE * later:
        return None
    share, chance = elsewhere / later, 1 - 1 / engines
    return Finding(
        rule="fleet-routing-loss",
        severity="warning" if share >= _BAD else "info",
        confidence=0.95,
        summary=f"Over {engines} engines of {snapshots[0].model_name}, {percent(share)} of later turns do not come "
        "to the engine "
        f"that served the turn before; drawing lots would give {percent(chance)}.",
        evidence=(
            f"{elsewhere:,} of {count(later, 'later turn')} since the start; a history is found with probability "
            f"{percent(1 - share)}, and 1/{engines} is {percent(1 / engines)}.",
        ),
        causes=("The balancer does not know conversations.",)
        if share > 0.8 * chance
        else ("Affinity works for part of the traffic only, or engines came and went.",),
        actions=_ACTIONS,
        metrics=_METRICS,
        loss=None,
    )

"""Different engines serve the turns of one conversation."""

from collections.abc import Sequence

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent

_LEAST_TURNS = 20
_NOTABLE = 0.05
_BAD = 0.10
_METRICS = ("hitratio_follow_up_turns_unmatched_total", "hitratio_follow_up_turns_total")
_ACTIONS = (
    "Route by conversation: session affinity, a consistent hash of the conversation id, or a prefix-aware router.",
    "If the load must be spread, let the replicas share KV through a second tier.",
)


def routing_loss(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where clients declare turn 5 and this engine has not seen turn 4.

    Without declared turns, one engine can't tell a history served elsewhere from a long first prompt.
    """
    turns, unmatched = period.counters.follow_up_turns, period.counters.unmatched_turns
    if turns < _LEAST_TURNS or unmatched < _NOTABLE * turns:
        return None
    share, new = unmatched / turns, period.share("compulsory", "new")
    evidence = [
        f"{unmatched:,} of {count(turns, 'declared follow-up turn')} {period.since} continue a turn that this engine "
        "has not seen."
    ]
    if new:
        evidence.append(
            f"{percent(new)} of the prompt blocks {period.window} were new to this engine. Another replica may have "
            "part of them."
        )
    return Finding(
        rule="routing-loss",
        severity="warning" if share >= _BAD else "info",
        # A young engine has not seen what came before its start.
        confidence=0.9 if period.seconds is not None else 0.7,
        summary=f"Routing loses reuse: {percent(share)} of follow-up turns reach an engine that did not serve the turn "
        "before.",
        evidence=tuple(evidence),
        causes=(
            "A round-robin or least-loaded balancer spreads the requests over several replicas.",
            "Replicas were added, removed or restarted, so conversations moved.",
        ),
        actions=_ACTIONS,
        metrics=_METRICS,
        loss=share * new,
    )


def fleet_routing_loss(snapshots: Sequence[Snapshot]) -> Finding | None:
    """The same over all engines of one model. Random routing over R engines would move 1 - 1/R of the turns."""
    periods = [Period.of(snapshot) for snapshot in snapshots if snapshot.counters is not None]
    engines = len(periods)
    turns = sum(period.counters.follow_up_turns for period in periods)
    unmatched = sum(period.counters.unmatched_turns for period in periods)
    if engines < 2 or turns < _LEAST_TURNS or unmatched < _NOTABLE * turns:
        return None
    share, random = unmatched / turns, 1 - 1 / engines
    return Finding(
        rule="fleet-routing-loss",
        severity="warning" if share >= _BAD else "info",
        confidence=0.95,
        summary=f"Over {engines} engines of {snapshots[0].model_name}, {percent(share)} of follow-up turns miss the "
        f"engine that served the turn before. Random routing would give {percent(random)}.",
        evidence=(
            f"{unmatched:,} of {count(turns, 'declared follow-up turn')} in the engines' last window. A turn finds its "
            f"history with probability {percent(1 - share)}; at random that would be 1/{engines}, "
            f"{percent(1 / engines)}.",
        ),
        causes=("The balancer does not know conversations.",)
        if share > 0.8 * random
        else ("Affinity covers only part of the traffic, or engines came and went.",),
        actions=_ACTIONS,
        metrics=_METRICS,
    )

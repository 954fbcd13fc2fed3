"""The cache was reset while serving."""

from datetime import datetime, timezone

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, duration, percent
from vllm_hitratio_plugin.snapshot import Snapshot

_NOTABLE = 0.005
_OFTEN = 3


def resets(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires while prompts still miss what a reset took, or where resets keep coming."""
    lost = traffic.share("unexplained", "reset")
    times = traffic.counters.resets
    often = times >= _OFTEN and traffic.seconds is not None
    if lost < _NOTABLE and not often:
        return None
    when = ""
    if snapshot.last_reset is not None:
        ago = max(snapshot.wall_time - snapshot.last_reset, 0.0)
        clock = datetime.fromtimestamp(snapshot.last_reset, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
        when = f" at {clock} UTC, {duration(ago)} ago"
    return Finding(
        rule="cache-reset",
        severity="warning" if often else "info",
        confidence=1.0,
        summary=f"The prefix cache was reset{when}: what was resident is gone, and the hit ratio recovers as it "
        "refills.",
        evidence=(
            f"{count(times, 'reset')} {traffic.since}.",
            f"{count(traffic.blocks('unexplained', 'reset'), 'prompt block')} ({percent(lost)}) {traffic.window} had "
            "been "
            "cached before the reset; neither the workload nor the capacity is to blame for them.",
        ),
        causes=("Weights were updated (RL, hot reload), somebody called /reset_prefix_cache, or a benchmark began.",),
        actions=(
            "Nothing, if that was meant; otherwise find the caller of /reset_prefix_cache in the access log.",
            "Judge the hit ratio again one window after the reset.",
        ),
        metrics=("hitratio_cache_resets_total", "hitratio_last_reset_timestamp_seconds"),
        loss=lost,
    )

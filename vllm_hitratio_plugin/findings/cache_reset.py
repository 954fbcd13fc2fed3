"""The cache was reset while serving."""

from datetime import datetime, timezone

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, duration, percent

_NOTABLE = 0.005
_OFTEN = 3


def cache_reset(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires while prompts miss what a reset dropped, or where resets keep coming."""
    lost = period.share("unexplained", "reset")
    times = period.counters.resets
    often = times >= _OFTEN and period.seconds is not None
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
        summary=f"The prefix cache was reset{when}. Its content is gone, and the hit ratio recovers as it refills.",
        evidence=(
            f"{count(times, 'reset')} {period.since}.",
            f"{count(period.blocks('unexplained', 'reset'), 'prompt block')} ({percent(lost)}) {period.window} had "
            "been cached before the reset. Neither the workload nor the capacity explains those misses.",
        ),
        causes=("Weights were updated (RL, hot reload), /reset_prefix_cache was called, or a benchmark began.",),
        actions=(
            "None, if the reset was intended. Otherwise find the caller of /reset_prefix_cache in the access log.",
            "Judge the hit ratio again one window after the reset.",
        ),
        metrics=("hitratio_cache_resets_total", "hitratio_last_reset_timestamp_seconds"),
        loss=lost,
    )

"""The figures are old."""

import time

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot

#: Age of the last fit from which on it no longer describes the present, s. The alert uses the same number.
STALE_SECONDS = 900.0


def stale(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where the last fit is older than the alert on stale figures allows."""
    if snapshot.fit_time is None:
        return None
    age = time.time() - snapshot.fit_time
    if age <= STALE_SECONDS:
        return None
    return Finding(
        rule="stale",
        severity="warning",
        confidence=0.95,
        summary=f"The figures are {age / 60:.0f} minutes old. All findings describe the engine as it was then.",
        evidence=(f"The last fit was {age:,.0f} s ago; the limit is {STALE_SECONDS:.0f} s.",),
        causes=(
            "The engine or the plugin's thread has stopped.",
            "The clocks of this machine and of the engine's machine differ.",
        ),
        actions=("Look in vLLM's log for lines that start with 'hitratio:', and check that the engine still answers.",),
        metrics=("hitratio_last_fit_timestamp_seconds",),
    )

"""The figures are old."""

import time

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.snapshot import Snapshot

#: A fit older than this says nothing about now, s; the alert goes by the same number.
STALE_SECONDS = 900.0


def stale(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
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
        summary=f"The figures are {age / 60:.0f} minutes old: what is said here was true then.",
        evidence=(f"The last fit was {age:,.0f} s ago; more than {STALE_SECONDS:.0f} s is too long.",),
        causes=(
            "The engine or the plugin's thread stands still.",
            "The clocks of this machine and the engine's differ.",
        ),
        actions=("Look into vLLM's log for lines that start with 'hitratio:', and whether the engine answers at all.",),
        metrics=("hitratio_last_fit_timestamp_seconds",),
    )

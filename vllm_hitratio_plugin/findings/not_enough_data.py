"""Too few prompts for a figure."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, duration
from vllm_hitratio_plugin.snapshot import Snapshot


def not_enough_data(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires until the window holds enough prompts and reuses for an estimate."""
    estimate = snapshot.estimate
    if "prefix_caching_off" in snapshot.degraded or (estimate is not None and estimate.ready):
        return None
    if estimate is None:
        seen = "Nothing was measured yet."
    else:
        seen = (
            f"{count(estimate.requests, 'prompt')} and {count(estimate.reuses, 'run')} of reusable blocks in the last "
            f"{duration(estimate.window_seconds)}; an estimate waits for 200 prompts and 50 runs, for with fewer the "
            "error "
            "reached 16 points."
        )
    return Finding(
        rule="not-enough-data",
        severity="info",
        confidence=1.0,
        summary="There is not enough traffic in the window for a prediction; none is given, rather than a wrong one.",
        evidence=(seen, "Counts of blocks and their fates are exact all the same."),
        causes=("The server is young or idle.", "Prompts come, but none of them is ever reused."),
        actions=("Wait, or send traffic.", "A longer --hitratio-window collects more."),
        metrics=("hitratio_window_requests", "hitratio_window_reuses", "hitratio_ready"),
    )

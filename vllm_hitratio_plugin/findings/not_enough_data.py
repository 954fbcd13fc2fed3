"""Too few requests or reuses for a prediction."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, duration

_LEAST_REQUESTS, _LEAST_REUSES = 200, 50


def not_enough_data(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires until the window holds enough requests and reuses for an estimate."""
    estimate = snapshot.estimate
    if "prefix_caching_off" in snapshot.degraded or (estimate is not None and estimate.ready):
        return None
    if period.counters.skipped and not period.counters.requests:
        # There is traffic, but none that an estimate could come from.
        return None
    # With enough requests it is not traffic that is missing.
    no_reuse = estimate is not None and estimate.requests >= _LEAST_REQUESTS
    if estimate is None:
        evidence = ["There is no estimate here: the engine publishes one some seconds after its start."]
    else:
        evidence = [
            f"The window holds {count(estimate.requests, 'request')} and {count(estimate.reuses, 'run')} of reused "
            f"blocks in the last {duration(estimate.window_seconds)}. An estimate needs {_LEAST_REQUESTS} requests and "
            f"{_LEAST_REUSES} runs: with fewer, errors of up to 16 points were measured.",
        ]
    evidence.append("Counts of blocks and of their outcomes are exact all the same.")
    return Finding(
        rule="not-enough-data",
        severity="info",
        confidence=1.0,
        summary="There is too little reuse in the window for a prediction, so none is given."
        if no_reuse
        else "There is too little traffic in the window for a prediction, so none is given.",
        evidence=tuple(evidence),
        causes=("Prompts share almost nothing with earlier ones.",) if no_reuse else ("The server is young or idle.",),
        actions=("Compare the beginnings of two prompts that should share one.", "A longer --hitratio-window helps.")
        if no_reuse
        else ("Wait, or send traffic.", "A longer --hitratio-window collects more."),
        metrics=("hitratio_window_requests", "hitratio_window_reuses", "hitratio_ready"),
    )

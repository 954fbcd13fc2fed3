"""Nothing to do."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import REUSE_TIME, Snapshot
from vllm_hitratio_plugin.wording import capacity, duration, percent


def healthy(snapshot: Snapshot, period: Period) -> Finding | None:
    """Says so with numbers; :func:`diagnose` asks only where no rule found a warning."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.observed is None or estimate.ceiling is None:
        return None
    predicted = estimate.predicted.get(REUSE_TIME)
    evidence = [
        f"Observed {percent(estimate.observed)}"
        + (f", predicted {percent(predicted)}" if predicted is not None else "")
        + f", ceiling {percent(estimate.ceiling)}, at {capacity(snapshot.capacity_blocks, snapshot.block_bytes)}, "
        f"over {estimate.requests:,} requests in the last {duration(estimate.window_seconds)}."
    ]
    if estimate.target is not None:
        verdict = "met" if estimate.observed >= estimate.target else "not met"
        evidence.append(f"The target of {percent(estimate.target)} is {verdict}.")
    return Finding(
        rule="healthy",
        severity="ok",
        confidence=0.9,
        summary="The cache hits what a cache of this size can hit on this traffic.",
        evidence=tuple(evidence),
        metrics=("hitratio_observed_ratio", "hitratio_predicted_ratio", "hitratio_infinite_cache_ratio"),
    )

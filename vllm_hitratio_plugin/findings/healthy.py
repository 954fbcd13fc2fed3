"""Nothing to do."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import capacity, duration, percent
from vllm_hitratio_plugin.snapshot import REUSE_TIME, Snapshot


def healthy(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Says so with numbers; only asked where no other rule found anything to do."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.observed is None or estimate.ceiling is None:
        return None
    predicted = estimate.predicted.get(REUSE_TIME)
    evidence = [
        f"Observed {percent(estimate.observed)}"
        + (f", predicted {percent(predicted)}" if predicted is not None else "")
        + f", at most possible {percent(estimate.ceiling)}, at "
        f"{capacity(snapshot.capacity_blocks, snapshot.block_bytes)}, "
        f"over {estimate.requests:,} prompts in the last {duration(estimate.window_seconds)}."
    ]
    if estimate.target is not None:
        evidence.append(
            f"The target of {percent(estimate.target)} is "
            f"{'met' if estimate.observed >= estimate.target else 'not met'}."
        )
    return Finding(
        rule="healthy",
        severity="ok",
        confidence=0.9,
        summary="The cache serves what this traffic lets a cache of this size serve.",
        evidence=tuple(evidence),
        metrics=("hitratio_observed_ratio", "hitratio_predicted_ratio", "hitratio_infinite_cache_ratio"),
    )

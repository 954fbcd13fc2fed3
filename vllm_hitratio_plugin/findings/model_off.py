"""The model's own error is large."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import REUSE_TIME, Snapshot
from vllm_hitratio_plugin.wording import percent, points

_LEAST = 0.03


def model_off(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where prediction and exact shadow differ by more than 3 standard errors and 3 points."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.model_divergence is None:
        return None
    divergence, stderr = estimate.model_divergence, estimate.model_divergence_stderr
    predicted = estimate.predicted.get(REUSE_TIME)
    if stderr is None or predicted is None or abs(divergence) <= max(_LEAST, 3 * stderr):
        return None
    return Finding(
        rule="model-off",
        severity="info",
        confidence=0.9,
        summary=f"The prediction is {points(abs(divergence))} too {'high' if divergence > 0 else 'low'}. This error is "
        "the model's, not the engine's.",
        evidence=(
            f"Predicted {percent(predicted)}; an exact LRU of the same capacity hits {percent(predicted - divergence)} "
            f"on the same requests (difference {points(abs(divergence))}, standard error {points(stderr)}).",
            "The capacities and characteristic times in this report have an error of that order.",
        ),
        causes=(
            "The traffic has just changed: a burst, or a benchmark that begins or ends.",
            "A handful of prompts fills the cache, so blocks are displaced in steps of one prompt.",
            "A few conversations run in lockstep, so reuse times and sizes are not independent draws.",
        ),
        actions=("Wait one window after a change. Until prediction and shadow agree, use the shadow's figures.",),
        metrics=(
            "hitratio_model_divergence_ratio",
            "hitratio_model_divergence_ratio_stderr",
            "hitratio_shadow_curve_hit_blocks_total",
        ),
    )

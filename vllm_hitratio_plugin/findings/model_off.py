"""The prediction is off: the model's fault, not the engine's."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import percent, points
from vllm_hitratio_plugin.snapshot import REUSE_TIME, Snapshot

_LEAST = 0.03


def model_off(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where prediction and exact shadow differ by more than 3 standard errors and 3 points."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.model_divergence is None:
        return None
    gap, stderr, predicted = (
        estimate.model_divergence,
        estimate.model_divergence_stderr,
        estimate.predicted.get(REUSE_TIME),
    )
    if stderr is None or predicted is None or abs(gap) <= max(_LEAST, 3 * stderr):
        return None
    return Finding(
        rule="model-off",
        severity="info",
        confidence=0.9,
        summary=f"The prediction is {points(abs(gap))} too {'high' if gap > 0 else 'low'}; the cache itself is not "
        "to blame.",
        evidence=(
            f"Predicted {percent(predicted)}; an exact LRU of the same capacity hits {percent(predicted - gap)} of the "
            f"same prompts (difference {points(abs(gap))}, standard error {points(stderr)}).",
            "Capacities and survival times below carry an error of that order.",
        ),
        causes=(
            "Traffic that has just changed: a burst, a benchmark that begins or ends.",
            "A cache that a handful of prompts fills, where displacement comes in steps of one prompt.",
            "Few conversations in lockstep, so that pauses and sizes are not independent draws.",
        ),
        actions=("Wait one window after a change; use the shadow's figures until the two agree.",),
        metrics=(
            "hitratio_model_divergence_ratio",
            "hitratio_model_divergence_ratio_stderr",
            "hitratio_shadow_curve_hit_blocks_total",
        ),
    )

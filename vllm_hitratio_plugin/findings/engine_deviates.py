"""The engine loses, or keeps, what an exact LRU of the same capacity would not."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, percent, points
from vllm_hitratio_plugin.snapshot import Snapshot

_LEAST = 0.01
_BAD = 0.10


def engine_deviates(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where observed and shadow differ by more than 3 standard errors and a point."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.engine_divergence is None or estimate.observed is None:
        return None
    gap, stderr = estimate.engine_divergence, estimate.engine_divergence_stderr
    if stderr is None or abs(gap) <= max(_LEAST, 3 * stderr):
        return None
    shadow = estimate.observed - gap
    missing = traffic.blocks("unexplained", "missing")
    evidence = [
        f"Observed {percent(estimate.observed)}; an ideal LRU of the same {count(estimate.capacity_blocks, 'block')} "
        "would "
        f"have hit {percent(shadow)} of the same prompts: {points(abs(gap))} {'less' if gap < 0 else 'more'} than it "
        f"should be, {abs(gap) / stderr:.0f} standard errors."
        if stderr > 0
        else f"Observed {percent(estimate.observed)}; an ideal LRU of the same size would have hit {percent(shadow)}."
    ]
    if missing:
        evidence.append(
            f"{count(missing, 'prompt block')} ({percent(traffic.share('unexplained', 'missing'))}) should still "
            "have been "
            f"cached and were not, {traffic.window}; none of them is explained by a reset."
        )
    return Finding(
        rule="engine-deviates",
        severity="critical" if gap < -_BAD else "warning",
        confidence=0.9,
        summary=f"The engine's cache hits {points(abs(gap))} {'less' if gap < 0 else 'more'} than an LRU of its size: "
        "neither the workload nor the capacity explains that.",
        evidence=tuple(evidence),
        causes=(
            "Something else takes blocks: a KV connector, offloading, or prompts still in transfer.",
            "Cached blocks are dropped without a reset being reported, or a router moved part of the traffic.",
            "A change of eviction policy, or a bug, in this vLLM version.",
        )
        if gap < 0
        else (
            "The eviction policy favours this workload over LRU.",
            "The plugin missed releases: see hitratio_degraded.",
        ),
        actions=(
            "Look when it began on the dashboard (engine gap) and what was rolled out then.",
            "Compare with another replica of the same version; restart one and see whether the gap comes back.",
        ),
        metrics=(
            "hitratio_engine_divergence_ratio",
            'hitratio_prompt_blocks_by_outcome_total{outcome="unexplained"}',
            "hitratio_shadow_ratio",
        ),
        loss=-gap if gap < 0 else None,
    )

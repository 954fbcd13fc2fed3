"""The engine hits less, or more, than an exact LRU of the same capacity."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent, points

_LEAST = 0.01
_BAD = 0.10


def engine_deviates(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where observed and shadow differ by more than 3 standard errors and a point."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.engine_divergence is None or estimate.observed is None:
        return None
    divergence, stderr = estimate.engine_divergence, estimate.engine_divergence_stderr
    if stderr is None or abs(divergence) <= max(_LEAST, 3 * stderr):
        return None
    difference = f"{points(abs(divergence))} {'less' if divergence < 0 else 'more'}"
    evidence = [
        f"Observed {percent(estimate.observed)}. An exact LRU of the same {count(estimate.capacity_blocks, 'block')} "
        f"would have hit {percent(estimate.observed - divergence)} on the same requests"
        + (f"; the difference is {abs(divergence) / stderr:.0f} standard errors." if stderr > 0 else ".")
    ]
    missing = period.blocks("unexplained", "missing")
    if missing:
        evidence.append(
            f"{count(missing, 'prompt block')} ({percent(period.share('unexplained', 'missing'))}) {period.window} "
            "should still have been cached and were not. They were not lost to a reset that the plugin saw."
        )
    return Finding(
        rule="engine-deviates",
        severity="critical" if divergence < -_BAD else "warning",
        confidence=0.9,
        summary=f"The engine hits {difference} than an LRU of its size. Neither the workload nor the capacity explains "
        "the difference.",
        evidence=tuple(evidence),
        causes=(
            "Something else takes blocks: a KV connector, offloading, or prompts whose transfer is not finished.",
            "Cached blocks were dropped without a reset that the plugin could see.",
            "The eviction policy changed in this vLLM version, or it has a bug.",
        )
        if divergence < 0
        else (
            "The eviction policy favours this workload over LRU.",
            "The plugin missed releases: see hitratio_degraded.",
        ),
        actions=(
            "Find on the dashboard when the engine divergence began, and what was rolled out then.",
            "Compare with another replica of the same version. Restart one and see whether the divergence comes back.",
        ),
        metrics=(
            "hitratio_engine_divergence_ratio",
            'hitratio_prompt_blocks_by_outcome_total{outcome="unexplained"}',
            "hitratio_shadow_ratio",
        ),
        loss=-divergence if divergence < 0 else None,
    )

"""A hit ratio that can't be true."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import percent, points

_TOLERANCE = 0.02
_LEAST_TOKENS = 10_000
#: The plugin's counters are up to one refresh older than vLLM's. In a longer window, that difference is negligible.
_LEAST_SECONDS = 100.0


def metric_inconsistent(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where hits exceed what had been seen before, or where vLLM's counters and the plugin's disagree."""
    evidence = [words for words in (_above_ceiling(snapshot), _vllm_differs(snapshot)) if words]
    if not evidence:
        return None
    return Finding(
        rule="metric-inconsistent",
        severity="warning",
        confidence=0.8,
        summary="Two figures of the hit ratio contradict each other, so one of them counts something else.",
        evidence=tuple(evidence),
        causes=(
            "Double counting: some vLLM versions count a waiting request at every lookup, and a preempted one again.",
            "The plugin started, or started again, later than vLLM's counters.",
            "A KV connector's hits are counted as local ones.",
            "There was a burst in the last 15 s. vLLM counts at once, the plugin at its next refresh. Look again.",
        ),
        actions=(
            "Trust the plugin's figure: it counts each request once, when it is admitted.",
            "Compare increases over the same minutes, not totals since the start.",
        ),
        metrics=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "hitratio_hit_tokens_total"),
    )


def _above_ceiling(snapshot: Snapshot) -> str | None:
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.observed is None or estimate.ceiling is None:
        return None
    noise = max(_TOLERANCE, 3 * (estimate.observed_stderr or 0.0))
    if estimate.observed <= estimate.ceiling + noise:
        return None
    return (
        f"Observed {percent(estimate.observed)}, but only {percent(estimate.ceiling)} of the prompt blocks had been "
        "seen before. No cache can hit more than that."
    )


def _vllm_differs(snapshot: Snapshot) -> str | None:
    vllm, counters = snapshot.vllm, snapshot.counters
    if vllm is None or not vllm.queries or vllm.hits is None or counters is None:
        return None
    if vllm.queries < _LEAST_TOKENS or counters.prompt_tokens < _LEAST_TOKENS:
        return None
    if snapshot.estimate is not None and snapshot.estimate.window_seconds < _LEAST_SECONDS:
        return None
    theirs, ours = vllm.hits / vllm.queries, counters.hit_tokens / counters.prompt_tokens
    if abs(theirs - ours) <= _TOLERANCE:
        return None
    ceiling = counters.ceiling_hit_blocks / counters.prompt_blocks if snapshot.modelled else None
    words = (
        f"Since the start, vLLM's own counters say {percent(theirs)} of {vllm.queries:,.0f} tokens; the admitted "
        f"requests had {percent(ours)} of {counters.prompt_tokens:,}. They differ by {points(abs(theirs - ours))}"
    )
    if ceiling is not None and theirs > ceiling + _TOLERANCE:
        words += f". {percent(theirs)} is above the ceiling of {percent(ceiling)}, so it counts something twice"
    return f"{words}."

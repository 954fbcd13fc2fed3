"""Snapshots → Prometheus metric families. The names are a contract: dashboards and alerts use them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from vllm_hitratio_plugin.snapshot import (
    DEGRADATIONS,
    ESTIMATORS,
    FORK_DEPTH_BOUNDS,
    INTERARRIVAL_BOUNDS,
    OUTCOMES,
    Counters,
    Estimate,
    Snapshot,
)

_LABELS = ("model_name", "engine")

#: A value with the labels beyond model_name and engine.
_Sample = tuple[tuple[str, ...], float | int | None]


@dataclass(frozen=True)
class Family:
    """One metric: its name without ``_total``, its kind, its help and the labels beyond model_name and engine."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


FAMILIES = (
    Family("hitratio_requests", "counter", "Prompts admitted."),
    Family("hitratio_prompt_blocks", "counter", "Blocks of admitted prompts, partly filled ones included."),
    Family("hitratio_hit_blocks", "counter", "Prompt blocks served from the local prefix cache."),
    Family("hitratio_prompt_tokens", "counter", "Tokens of admitted prompts."),
    Family("hitratio_hit_tokens", "counter", "Prompt tokens served from the local prefix cache."),
    Family("hitratio_external_hit_tokens", "counter", "Prompt tokens loaded by a KV connector."),
    Family(
        "hitratio_predicted_hit_blocks",
        "counter",
        "Expected hits of the same prompts at this capacity.",
        ("estimator",),
    ),
    Family(
        "hitratio_curve_hit_blocks",
        "counter",
        "Expected hits of the same prompts at another capacity; +Inf is the ceiling.",
        ("capacity_blocks",),
    ),
    Family("hitratio_shadow_hit_blocks", "counter", "Hits of an exact LRU of this capacity on the same prompts."),
    Family(
        "hitratio_shadow_curve_hit_blocks",
        "counter",
        "Hits of an exact LRU of another capacity on the same prompts.",
        ("capacity_blocks",),
    ),
    Family(
        "hitratio_prompt_blocks_by_outcome",
        "counter",
        "Prompt blocks by what became of them, and why.",
        ("outcome", "reason"),
    ),
    Family("hitratio_unreused_history_blocks", "counter", "Cached answer blocks that the next prompt did not ask for."),
    Family("hitratio_conversations", "counter", "Conversations whose first turn was seen."),
    Family("hitratio_forks", "counter", "Prompts that left a remembered history in its middle."),
    Family(
        "hitratio_fork_depth_blocks", "histogram", "Blocks that a prompt shares with others before it goes its own way."
    ),
    Family("hitratio_follow_up_turns", "counter", "Prompts whose client says that they are no first turn."),
    Family(
        "hitratio_follow_up_turns_unmatched",
        "counter",
        "Of them, those whose previous turn was not seen by this engine.",
    ),
    Family("hitratio_short_prompts", "counter", "Prompts too short for any block to hit."),
    Family("hitratio_resumed_requests", "counter", "Preempted requests that came back; not counted as prompts."),
    Family("hitratio_cache_resets", "counter", "Times the engine dropped its prefix cache."),
    Family("hitratio_observed_ratio", "gauge", "Hit ratio of the current window, in blocks."),
    Family("hitratio_predicted_ratio", "gauge", "Predicted hit ratio of the current window.", ("estimator",)),
    Family("hitratio_predicted_ratio_stderr", "gauge", "Standard error of the prediction.", ("estimator",)),
    Family(
        "hitratio_infinite_cache_ratio",
        "gauge",
        "Share of prompt blocks seen before: what unlimited capacity would hit.",
    ),
    Family(
        "hitratio_divergence_ratio", "gauge", "Observed minus predicted (reuse_time) hit ratio of the current window."
    ),
    Family("hitratio_divergence_ratio_stderr", "gauge", "Standard error of the gap, paired."),
    Family("hitratio_shadow_ratio", "gauge", "Hit ratio of an exact LRU of this capacity over the window."),
    Family("hitratio_model_divergence_ratio", "gauge", "Predicted minus shadow: the model's own error."),
    Family("hitratio_model_divergence_ratio_stderr", "gauge", "Standard error of the model gap, paired."),
    Family("hitratio_engine_divergence_ratio", "gauge", "Observed minus shadow: what the engine does beside LRU."),
    Family("hitratio_engine_divergence_ratio_stderr", "gauge", "Standard error of the engine gap, paired."),
    Family("hitratio_curve_ratio", "gauge", "Predicted hit ratio of the window at a capacity.", ("capacity_blocks",)),
    Family(
        "hitratio_drift_contribution_ratio",
        "gauge",
        "Part of a factor of the traffic in the change of the predicted hit ratio since the window before.",
        ("factor",),
    ),
    Family("hitratio_drift_significant", "gauge", "1 if the factor changed beyond its standard errors.", ("factor",)),
    Family("hitratio_conversation_arrival_rate", "gauge", "New conversations per second (lambda_0)."),
    Family("hitratio_history_workload_blocks", "gauge", "Prompt blocks of a conversation (A_R)."),
    Family("hitratio_reusable_workload_blocks", "gauge", "Reusable hashed blocks of a conversation (A_H^hash)."),
    Family("hitratio_lifetime_blocks", "gauge", "Blocks of a conversation at its end (E[B])."),
    Family("hitratio_turns_per_conversation", "gauge", "Turns of a conversation (E[M])."),
    Family("hitratio_characteristic_time_seconds", "gauge", "How long an unused block survives (T_C)."),
    Family("hitratio_interarrival_seconds", "histogram", "Time between prompts of one conversation (F)."),
    Family("hitratio_capacity_blocks", "gauge", "Blocks the prefix cache can hold (N)."),
    Family("hitratio_capacity_bytes", "gauge", "The same in bytes, on one worker."),
    Family("hitratio_block_size_tokens", "gauge", "Tokens of one block."),
    Family(
        "hitratio_max_model_length_tokens", "gauge", "Longest request allowed, its answer included (max_model_len)."
    ),
    Family("hitratio_in_use_blocks", "gauge", "Mean blocks in use when a prompt is admitted, over the window."),
    Family("hitratio_target_ratio", "gauge", "The hit ratio asked for."),
    Family("hitratio_target_reachable", "gauge", "1 if some capacity reaches the target, 0 if none does."),
    Family("hitratio_recommended_capacity_blocks", "gauge", "Capacity that reaches the target."),
    Family("hitratio_recommended_capacity_tokens", "gauge", "The same in tokens."),
    Family("hitratio_recommended_capacity_bytes", "gauge", "The same in bytes, on one worker."),
    Family("hitratio_window_seconds", "gauge", "Length of the current window."),
    Family("hitratio_window_requests", "gauge", "Prompts in the current window."),
    Family(
        "hitratio_window_reuses", "gauge", "Runs of reusable blocks in the current window, what the curve rests on."
    ),
    Family("hitratio_ready", "gauge", "1 if the window holds enough for an estimate, 0 if not yet."),
    Family("hitratio_last_fit_timestamp_seconds", "gauge", "Unix time of the last fit."),
    Family("hitratio_fit_duration_seconds", "gauge", "Time the last fit took."),
    Family("hitratio_last_reset_timestamp_seconds", "gauge", "Unix time of the last cache reset."),
    Family("hitratio_degraded", "gauge", "1 while something keeps the plugin from its work.", ("reason",)),
    Family(
        "hitratio_build_info",
        "gauge",
        "Always 1; versions and the block pool's policy.",
        ("version", "vllm_version", "unhashed"),
    ),
    Family("hitratio_index_blocks", "gauge", "Blocks remembered by the prefix tree."),
    Family("hitratio_index_bytes", "gauge", "Approximate memory of the prefix tree."),
)


def families(snapshots: Sequence[Snapshot]) -> Iterator[Metric]:
    """The metrics of all engines together; what was not measured has no sample, a metric without one is left out."""
    samples = [(snapshot, _samples(snapshot)) for snapshot in snapshots]
    for family in FAMILIES:
        names = (*_LABELS, *family.labels)
        metric: Metric
        if family.kind == "histogram":
            metric = HistogramMetricFamily(family.name, family.help, labels=names)
            for snapshot, _ in samples:
                if snapshot.counters is not None:
                    buckets, total = _HISTOGRAMS[family.name](snapshot.counters)
                    metric.add_metric([snapshot.model_name, snapshot.engine], buckets, total)
        else:
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=names)
            for snapshot, values in samples:
                for labels, value in values.get(family.name, ()):
                    if value is not None:
                        metric.add_metric([snapshot.model_name, snapshot.engine, *labels], float(value))
        if metric.samples:
            yield metric


_Buckets = list[tuple[str, float]]


def _interarrivals(counters: Counters) -> tuple[_Buckets, float]:
    return _cumulative(INTERARRIVAL_BOUNDS, counters.interarrival_buckets), counters.interarrival_seconds


def _fork_depths(counters: Counters) -> tuple[_Buckets, float]:
    forks = [0] * (len(FORK_DEPTH_BOUNDS) + 1)
    total = 0
    for depth, prompts in counters.fork_depths.items():
        forks[bisect_left(FORK_DEPTH_BOUNDS, depth)] += prompts
        total += depth * prompts
    return _cumulative(FORK_DEPTH_BOUNDS, forks), total


_HISTOGRAMS: dict[str, Callable[[Counters], tuple[_Buckets, float]]] = {
    "hitratio_interarrival_seconds": _interarrivals,
    "hitratio_fork_depth_blocks": _fork_depths,
}


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> _Buckets:
    return list(zip((*map(str, bounds), "+Inf"), map(float, accumulate(counts)), strict=True))


def _samples(snapshot: Snapshot) -> dict[str, Iterable[_Sample]]:
    bytes_each = snapshot.block_bytes
    values: dict[str, float | int | None] = {
        "hitratio_capacity_blocks": snapshot.capacity_blocks,
        "hitratio_capacity_bytes": _times(snapshot.capacity_blocks, bytes_each),
        "hitratio_block_size_tokens": snapshot.block_size,
        "hitratio_max_model_length_tokens": snapshot.max_model_len,
        "hitratio_last_fit_timestamp_seconds": snapshot.fit_time,
        "hitratio_fit_duration_seconds": snapshot.fit_seconds,
        "hitratio_last_reset_timestamp_seconds": snapshot.last_reset,
        "hitratio_index_blocks": snapshot.index_blocks,
        "hitratio_index_bytes": snapshot.index_bytes,
    }
    samples: dict[str, Iterable[_Sample]] = {
        "hitratio_degraded": [((reason,), 1 if reason in snapshot.degraded else 0) for reason in DEGRADATIONS],
        "hitratio_build_info": [((snapshot.version, snapshot.vllm_version, snapshot.unhashed), 1)],
    }
    if snapshot.counters is not None:
        values.update(_counter_values(snapshot.counters))
        if snapshot.modelled:
            samples.update(_predicted_counters(snapshot.counters))
    if snapshot.estimate is not None:
        values.update(_observed_values(snapshot.estimate))
        if snapshot.modelled:
            values.update(_model_values(snapshot.estimate, snapshot.block_size, bytes_each))
            samples.update(_model_samples(snapshot.estimate))
    samples.update({name: [((), value)] for name, value in values.items()})
    return samples


def _counter_values(counters: Counters) -> dict[str, float | int | None]:
    return {
        "hitratio_requests": counters.requests,
        "hitratio_prompt_blocks": counters.prompt_blocks,
        "hitratio_hit_blocks": counters.hit_blocks,
        "hitratio_prompt_tokens": counters.prompt_tokens,
        "hitratio_hit_tokens": counters.hit_tokens,
        "hitratio_external_hit_tokens": counters.external_hit_tokens,
        "hitratio_conversations": counters.conversations,
        "hitratio_forks": counters.forks,
        "hitratio_follow_up_turns": counters.follow_up_turns,
        "hitratio_follow_up_turns_unmatched": counters.unmatched_turns,
        "hitratio_short_prompts": counters.short_prompts,
        "hitratio_resumed_requests": counters.resumed,
        "hitratio_cache_resets": counters.resets,
    }


def _predicted_counters(counters: Counters) -> dict[str, Iterable[_Sample]]:
    curve: list[_Sample] = [((str(size),), hits) for size, hits in sorted(counters.curve_hit_blocks.items())]
    return {
        "hitratio_predicted_hit_blocks": [((name,), counters.predicted_hit_blocks[name]) for name in ESTIMATORS],
        "hitratio_curve_hit_blocks": [*curve, (("+Inf",), counters.ceiling_hit_blocks)],
        "hitratio_shadow_hit_blocks": [((), counters.shadow_hit_blocks)],
        "hitratio_shadow_curve_hit_blocks": [
            ((str(size),), hits) for size, hits in sorted(counters.shadow_curve_hit_blocks.items())
        ],
        "hitratio_prompt_blocks_by_outcome": list(zip(OUTCOMES, counters.outcomes, strict=True)),
        "hitratio_unreused_history_blocks": [((), counters.unreused_history_blocks)],
    }


def _observed_values(estimate: Estimate) -> dict[str, float | int | None]:
    return {
        "hitratio_observed_ratio": estimate.observed,
        "hitratio_in_use_blocks": estimate.in_use_blocks,
        "hitratio_window_seconds": estimate.window_seconds,
        "hitratio_window_requests": estimate.requests,
        "hitratio_window_reuses": estimate.reuses,
        "hitratio_ready": int(estimate.ready),
    }


def _model_values(estimate: Estimate, block_size: int, bytes_each: int | None) -> dict[str, float | int | None]:
    recommended = None if estimate.recommended_blocks is None else -(-estimate.recommended_blocks // 1)
    return {
        "hitratio_infinite_cache_ratio": estimate.ceiling,
        "hitratio_divergence_ratio": estimate.divergence,
        "hitratio_divergence_ratio_stderr": estimate.divergence_stderr,
        "hitratio_shadow_ratio": estimate.shadow,
        "hitratio_model_divergence_ratio": estimate.model_divergence,
        "hitratio_model_divergence_ratio_stderr": estimate.model_divergence_stderr,
        "hitratio_engine_divergence_ratio": estimate.engine_divergence,
        "hitratio_engine_divergence_ratio_stderr": estimate.engine_divergence_stderr,
        "hitratio_conversation_arrival_rate": estimate.arrival_rate,
        "hitratio_history_workload_blocks": estimate.history_workload,
        "hitratio_reusable_workload_blocks": estimate.reusable_workload,
        "hitratio_lifetime_blocks": estimate.lifetime_blocks,
        "hitratio_turns_per_conversation": estimate.turns,
        "hitratio_characteristic_time_seconds": estimate.characteristic_time,
        "hitratio_target_ratio": estimate.target,
        "hitratio_target_reachable": None if estimate.reachable is None else int(estimate.reachable),
        "hitratio_recommended_capacity_blocks": recommended,
        "hitratio_recommended_capacity_tokens": _times(recommended, block_size),
        "hitratio_recommended_capacity_bytes": _times(recommended, bytes_each),
    }


def _model_samples(estimate: Estimate) -> dict[str, Iterable[_Sample]]:
    return {
        "hitratio_predicted_ratio": [((name,), estimate.predicted[name]) for name in ESTIMATORS],
        "hitratio_predicted_ratio_stderr": [((name,), estimate.predicted_stderr[name]) for name in ESTIMATORS],
        "hitratio_curve_ratio": [((str(size),), ratio) for size, ratio in sorted(estimate.curve.items())],
        "hitratio_drift_contribution_ratio": [
            ((factor,), part) for factor, part in estimate.drift_contributions.items()
        ],
        "hitratio_drift_significant": [
            ((factor,), int(factor in estimate.drift_significant)) for factor in estimate.drift_contributions
        ],
    }


def _times(count: float | None, each: int | None) -> float | None:
    return None if count is None or each is None else count * each

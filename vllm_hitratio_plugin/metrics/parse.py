"""Prometheus text → snapshots: the inverse of ``families``, as far as a page tells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

from vllm_hitratio_plugin.snapshot import (
    ESTIMATORS,
    FORK_DEPTH_BOUNDS,
    FORK_DEPTHS,
    INTERARRIVAL_BOUNDS,
    OUTCOMES,
    Counters,
    Estimate,
    Snapshot,
    VllmCounters,
)

#: Labels without model_name and engine → value.
_Values = dict[tuple[str, ...], float]

_EXTRA = ("estimator", "capacity_blocks", "outcome", "reason", "le", "factor", "version", "vllm_version", "unhashed")


@dataclass(frozen=True)
class Page:
    """What one page of metrics says."""

    snapshots: list[Snapshot]
    """Engines with the plugin, with vLLM's own figures where the page has them."""
    without_plugin: list[VllmCounters]
    """Engines of vLLM that the plugin says nothing of."""


def parse(text: str, now: float) -> Page:
    """Read a page.

    A page has neither windows' ledgers, nor survival times by capacity, nor the words of a degradation; forks deeper
    than 16 blocks are known to the bounds of their histogram.

    Args:
        text: Prometheus text format; raises ValueError for anything else.
        now: Unix seconds, when it was read.
    """
    engines: dict[tuple[str, str], dict[str, _Values]] = {}
    configs: dict[str, Mapping[str, str]] = {}
    vllm: dict[tuple[str, str], dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.labels.get("model_name", ""), sample.labels.get("engine", "0"))
            if sample.name.startswith("hitratio_"):
                labels = tuple(sample.labels[name] for name in _EXTRA if name in sample.labels)
                engines.setdefault(key, {}).setdefault(sample.name, {})[labels] = sample.value
            elif sample.name == "vllm:cache_config_info":
                configs[key[1]] = sample.labels
            elif sample.name in _VLLM:
                vllm.setdefault(key, {})[_VLLM[sample.name]] = sample.value
    if not vllm:
        vllm = {("", engine): {} for engine in configs}
    counters = {
        (model, engine): _vllm_counters(model, engine, values, configs.get(engine, {}))
        for (model, engine), values in vllm.items()
    }
    snapshots = [
        replace(_snapshot(model, engine, values, now), vllm=counters.get((model, engine)))
        for (model, engine), values in engines.items()
        if "hitratio_capacity_blocks" in values
    ]
    known = {(snapshot.model_name, snapshot.engine) for snapshot in snapshots}
    return Page(snapshots, [found for key, found in counters.items() if key not in known])


_VLLM = {
    "vllm:prefix_cache_queries_total": "queries",
    "vllm:prefix_cache_hits_total": "hits",
    "vllm:num_preemptions_total": "preemptions",
}


def _vllm_counters(model: str, engine: str, values: Mapping[str, float], config: Mapping[str, str]) -> VllmCounters:
    blocks = _whole(config.get("num_gpu_blocks"))
    return VllmCounters(
        model_name=model,
        engine=engine,
        caching={"true": True, "false": False}.get(config.get("enable_prefix_caching", "").lower()),
        block_size=_whole(config.get("block_size")),
        # vLLM keeps one null block.
        capacity_blocks=None if blocks is None else blocks - 1,
        **values,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _snapshot(model: str, engine: str, values: dict[str, _Values], now: float) -> Snapshot:
    read = _Reader(values)
    capacity = int(read.one("hitratio_capacity_blocks") or 0)
    total_bytes = read.one("hitratio_capacity_bytes")
    degraded = {
        labels[0]: "the words are in vLLM's log and in the exporter's /hitratio.json"
        for labels, value in values.get("hitratio_degraded", {}).items()
        if value
    }
    version, vllm_version, unhashed = next(iter(values.get("hitratio_build_info", {})), ("", "", ""))
    return Snapshot(
        model_name=model,
        engine=engine,
        version=version,
        vllm_version=vllm_version,
        unhashed=unhashed,
        wall_time=now,
        capacity_blocks=capacity,
        block_size=int(read.one("hitratio_block_size_tokens") or 0),
        block_bytes=None if total_bytes is None or not capacity else round(total_bytes / capacity),
        modelled="not_modelled" not in degraded,
        counters=_counters(read) if "hitratio_requests_total" in values else None,
        estimate=_estimate(read, now, capacity) if "hitratio_ready" in values else None,
        fit_time=read.one("hitratio_last_fit_timestamp_seconds"),
        fit_seconds=read.one("hitratio_fit_duration_seconds"),
        index_blocks=read.count("hitratio_index_blocks"),
        index_bytes=read.count("hitratio_index_bytes"),
        last_reset=read.one("hitratio_last_reset_timestamp_seconds"),
        max_model_len=read.count("hitratio_max_model_length_tokens"),
        degraded=degraded,
    )


class _Reader:
    """Values of one engine by name."""

    def __init__(self, values: dict[str, _Values]) -> None:
        self._values = values

    def one(self, name: str) -> float | None:
        """The value of a metric without labels; None where the page has none."""
        return self._values.get(name, {}).get(())

    def count(self, name: str) -> int | None:
        """The same, whole."""
        value = self.one(name)
        return None if value is None else int(value)

    def total(self, name: str) -> int:
        """A counter, 0 where the page has none: its plugin does not count that."""
        return int(self.one(name) or 0)

    def by_label(self, name: str) -> dict[str, float]:
        """Values by their only label."""
        return {labels[0]: value for labels, value in self._values.get(name, {}).items()}

    def by_size(self, name: str) -> dict[int, float]:
        """Values by capacity in blocks, the unlimited one left out."""
        return {int(size): value for size, value in self.by_label(name).items() if size != "+Inf"}

    def outcomes(self) -> list[int]:
        """Blocks by ``OUTCOMES``."""
        found = self._values.get("hitratio_prompt_blocks_by_outcome_total", {})
        return [int(found.get(column, 0)) for column in OUTCOMES]

    def histogram(self, name: str, bounds: Iterable[float]) -> list[int]:
        """Counts of each bucket by itself, the last one beyond all bounds."""
        cumulative = {float(bound): value for bound, value in self.by_label(f"{name}_bucket").items()}
        edges = [0.0, *(cumulative.get(float(bound), 0.0) for bound in (*bounds, math.inf))]
        return [int(high - low) for low, high in pairwise(edges)]


def _counters(read: _Reader) -> Counters:
    depths = read.histogram("hitratio_fork_depth_blocks", FORK_DEPTH_BOUNDS)
    predicted = read.by_label("hitratio_predicted_hit_blocks_total")
    return Counters(
        requests=read.total("hitratio_requests_total"),
        prompt_blocks=read.total("hitratio_prompt_blocks_total"),
        hit_blocks=read.one("hitratio_hit_blocks_total") or 0.0,
        prompt_tokens=read.total("hitratio_prompt_tokens_total"),
        hit_tokens=read.total("hitratio_hit_tokens_total"),
        external_hit_tokens=read.total("hitratio_external_hit_tokens_total"),
        conversations=read.total("hitratio_conversations_total"),
        short_prompts=read.total("hitratio_short_prompts_total"),
        forks=read.total("hitratio_forks_total"),
        fork_depths={
            depth: prompts
            for depth, prompts in zip((*FORK_DEPTH_BOUNDS, FORK_DEPTHS + 1), depths, strict=True)
            if prompts
        },
        follow_up_turns=read.total("hitratio_follow_up_turns_total"),
        unmatched_turns=read.total("hitratio_follow_up_turns_unmatched_total"),
        resumed=read.total("hitratio_resumed_requests_total"),
        resets=read.total("hitratio_cache_resets_total"),
        predicted_hit_blocks={name: predicted.get(name, 0.0) for name in ESTIMATORS},
        curve_hit_blocks=read.by_size("hitratio_curve_hit_blocks_total"),
        ceiling_hit_blocks=read.by_label("hitratio_curve_hit_blocks_total").get("+Inf", 0.0),
        shadow_hit_blocks=read.one("hitratio_shadow_hit_blocks_total") or 0.0,
        shadow_curve_hit_blocks=read.by_size("hitratio_shadow_curve_hit_blocks_total"),
        outcomes=read.outcomes(),
        unreused_history_blocks=read.total("hitratio_unreused_history_blocks_total"),
        interarrival_buckets=read.histogram("hitratio_interarrival_seconds", INTERARRIVAL_BOUNDS),
        interarrival_seconds=read.one("hitratio_interarrival_seconds_sum") or 0.0,
    )


def _estimate(read: _Reader, now: float, capacity: int) -> Estimate:
    reachable = read.one("hitratio_target_reachable")
    predicted = read.by_label("hitratio_predicted_ratio")
    stderr = read.by_label("hitratio_predicted_ratio_stderr")
    drift, moved = read.by_label("hitratio_drift_contribution_ratio"), read.by_label("hitratio_drift_significant")
    return Estimate(
        time=now,
        window_seconds=read.one("hitratio_window_seconds") or 0.0,
        requests=read.total("hitratio_window_requests"),
        reuses=read.total("hitratio_window_reuses"),
        ready=bool(read.one("hitratio_ready")),
        capacity_blocks=capacity,
        in_use_blocks=read.one("hitratio_in_use_blocks"),
        observed=read.one("hitratio_observed_ratio"),
        observed_stderr=None,
        predicted={name: predicted.get(name) for name in ESTIMATORS},
        predicted_stderr={name: stderr.get(name) for name in ESTIMATORS},
        divergence=read.one("hitratio_divergence_ratio"),
        divergence_stderr=read.one("hitratio_divergence_ratio_stderr"),
        shadow=read.one("hitratio_shadow_ratio"),
        model_divergence=read.one("hitratio_model_divergence_ratio"),
        model_divergence_stderr=read.one("hitratio_model_divergence_ratio_stderr"),
        engine_divergence=read.one("hitratio_engine_divergence_ratio"),
        engine_divergence_stderr=read.one("hitratio_engine_divergence_ratio_stderr"),
        ceiling=read.one("hitratio_infinite_cache_ratio"),
        arrival_rate=read.one("hitratio_conversation_arrival_rate"),
        history_workload=read.one("hitratio_history_workload_blocks"),
        reusable_workload=read.one("hitratio_reusable_workload_blocks"),
        lifetime_blocks=read.one("hitratio_lifetime_blocks"),
        turns=read.one("hitratio_turns_per_conversation"),
        characteristic_time=read.one("hitratio_characteristic_time_seconds"),
        target=read.one("hitratio_target_ratio"),
        reachable=None if reachable is None else bool(reachable),
        recommended_blocks=read.one("hitratio_recommended_capacity_blocks"),
        curve=read.by_size("hitratio_curve_ratio"),
        drift_contributions=drift,
        drift_significant=sorted((name for name in drift if moved.get(name)), key=lambda name: -abs(drift[name])),
    )

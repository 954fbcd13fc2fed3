"""The catalogue: names are a contract, and every metric tells what it was made from."""

from dataclasses import fields
from typing import Any

import pytest

from tests.support.example_snapshots import full_snapshot, page
from vllm_hitratio_plugin.metrics.catalogue import METRICS, sample_names
from vllm_hitratio_plugin.metrics.metric import Metric
from vllm_hitratio_plugin.metrics.reader import parse
from vllm_hitratio_plugin.snapshot import Counters, Estimate, Snapshot

#: Names that dashboards, alerts and users rely on, and their labels: changing one breaks them.
CONTRACT: dict[str, set[str]] = {
    "hitratio_requests_total": set(),
    "hitratio_prompt_blocks_total": set(),
    "hitratio_hit_blocks_total": set(),
    "hitratio_prompt_tokens_total": set(),
    "hitratio_hit_tokens_total": set(),
    "hitratio_external_hit_tokens_total": set(),
    "hitratio_conversations_total": set(),
    "hitratio_forks_total": set(),
    "hitratio_fork_depth_blocks_bucket": {"le"},
    "hitratio_fork_depth_blocks_count": set(),
    "hitratio_fork_depth_blocks_sum": set(),
    "hitratio_follow_up_turns_total": set(),
    "hitratio_follow_up_turns_unmatched_total": set(),
    "hitratio_short_prompts_total": set(),
    "hitratio_resumed_requests_total": set(),
    "hitratio_skipped_requests_total": set(),
    "hitratio_cache_resets_total": set(),
    "hitratio_interarrival_seconds_bucket": {"le"},
    "hitratio_interarrival_seconds_count": set(),
    "hitratio_interarrival_seconds_sum": set(),
    "hitratio_predicted_hit_blocks_total": {"estimator"},
    "hitratio_curve_hit_blocks_total": {"capacity_blocks"},
    "hitratio_shadow_hit_blocks_total": set(),
    "hitratio_shadow_curve_hit_blocks_total": {"capacity_blocks"},
    "hitratio_prompt_blocks_by_outcome_total": {"outcome", "reason"},
    "hitratio_unreused_history_blocks_total": set(),
    "hitratio_written_blocks_total": set(),
    "hitratio_observed_ratio": set(),
    "hitratio_observed_ratio_stderr": set(),
    "hitratio_in_use_blocks": set(),
    "hitratio_window_seconds": set(),
    "hitratio_window_requests": set(),
    "hitratio_window_reuses": set(),
    "hitratio_ready": set(),
    "hitratio_window_increase": {"counter", "bucket"},
    "hitratio_window_increase_seconds": set(),
    "hitratio_window_prompt_blocks_by_outcome": {"outcome", "reason"},
    "hitratio_predicted_ratio": {"estimator"},
    "hitratio_predicted_ratio_stderr": {"estimator"},
    "hitratio_infinite_cache_ratio": set(),
    "hitratio_infinite_cache_ratio_stderr": set(),
    "hitratio_divergence_ratio": set(),
    "hitratio_divergence_ratio_stderr": set(),
    "hitratio_shadow_ratio": set(),
    "hitratio_model_divergence_ratio": set(),
    "hitratio_model_divergence_ratio_stderr": set(),
    "hitratio_engine_divergence_ratio": set(),
    "hitratio_engine_divergence_ratio_stderr": set(),
    "hitratio_curve_ratio": {"capacity_blocks"},
    "hitratio_curve_characteristic_time_seconds": {"capacity_blocks"},
    "hitratio_drift_contribution_ratio": {"factor"},
    "hitratio_drift_significant": {"factor"},
    "hitratio_conversation_arrival_rate": set(),
    "hitratio_history_workload_blocks": set(),
    "hitratio_reusable_workload_blocks": set(),
    "hitratio_lifetime_blocks": set(),
    "hitratio_turns_per_conversation": set(),
    "hitratio_characteristic_time_seconds": set(),
    "hitratio_capacity_blocks": set(),
    "hitratio_capacity_bytes": set(),
    "hitratio_block_size_tokens": set(),
    "hitratio_max_model_length_tokens": set(),
    "hitratio_match_unit_tokens": set(),
    "hitratio_target_ratio": set(),
    "hitratio_target_reachable": set(),
    "hitratio_recommended_capacity_blocks": set(),
    "hitratio_recommended_capacity_tokens": set(),
    "hitratio_recommended_capacity_bytes": set(),
    "hitratio_last_fit_timestamp_seconds": set(),
    "hitratio_fit_duration_seconds": set(),
    "hitratio_last_reset_timestamp_seconds": set(),
    "hitratio_degraded": {"reason"},
    "hitratio_build_info": {"version", "vllm_version", "unhashed"},
    "hitratio_exporter_info": {"url"},
    "hitratio_index_blocks": set(),
    "hitratio_index_bytes": set(),
}

#: Made from what other metrics show, so there is nothing to read.
NOT_READABLE = {"hitratio_recommended_capacity_tokens", "hitratio_recommended_capacity_bytes"}

#: Fields that only a whole snapshot has, by part.
NOT_ON_A_PAGE = {
    # Of the earlier counters, a page tells what findings need: sums and buckets.
    Snapshot: {"earlier", "sums", "vllm"},
    Counters: {"uncounted"},
    Estimate: {"shadow_curve"},
}

#: When the pages are read, Unix seconds.
NOW = 1.7e9


@pytest.fixture(scope="module")
def full() -> Snapshot:
    return full_snapshot()


@pytest.fixture(scope="module")
def text(full: Snapshot) -> str:
    return page(full)


def read_back(text: str) -> Snapshot:
    (read,) = parse(text, now=NOW).snapshots
    return read


def without(text: str, metric: Metric) -> str:
    names = tuple(f"{name}{{" for name in metric.sample_names)
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(names))


def test_the_names_are_the_contracts() -> None:
    assert sample_names() == set(CONTRACT)
    assert len(METRICS) == len({metric.name for metric in METRICS})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_labels_are_the_contracts(metric: Metric) -> None:
    for name in metric.sample_names:
        assert set(metric.labels_of(name.removeprefix(metric.name))) == CONTRACT[name]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_are_in_base_units_and_help_stands_alone(metric: Metric) -> None:
    assert metric.name.startswith("hitratio_")
    assert not metric.name.endswith(("_total", "_ms", "_percent"))
    assert metric.help[0].isupper() or metric.help.startswith("1 ")
    assert metric.help.endswith(".")
    for words in ("the same", "of them", "of those", "above", "below", "this capacity"):
        assert f" {words} " not in f" {metric.help.lower()} ".replace("number above 1", "").replace(",", " ")


def test_no_two_metrics_have_one_help() -> None:
    assert len({metric.help for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_survives_the_round_trip(metric: Metric, full: Snapshot, text: str) -> None:
    shown = list(metric.samples(full))
    assert shown
    assert list(metric.samples(read_back(text))) == shown


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_readable_metric_is_read(metric: Metric, text: str) -> None:
    """Without it, something else is read; what is not readable makes no difference."""
    assert metric.source.readable == (metric.name not in NOT_READABLE)
    found = parse(without(text, metric), now=NOW).snapshots
    assert (found != [read_back(text)]) == metric.source.readable


def parts(snapshot: Snapshot) -> dict[type, Any]:
    return {Snapshot: snapshot, Counters: snapshot.counters, Estimate: snapshot.estimate}


@pytest.mark.parametrize("part", [Snapshot, Counters, Estimate])
def test_every_field_is_read_back_or_listed(part: type, full: Snapshot, text: str) -> None:
    mine, theirs = parts(full)[part], parts(read_back(text))[part]
    # Parts by themselves; when, in which words and behind which labels are the reader's.
    apart = {"counters", "estimate", "time", "degraded", "labels"}
    lost = {item.name for item in fields(part) if getattr(mine, item.name) != getattr(theirs, item.name)}
    assert lost - apart <= NOT_ON_A_PAGE[part]
    same = {item.name for item in fields(part)} - lost - NOT_ON_A_PAGE[part]
    # And what is read is something: a field that is empty on both sides would tell nothing.
    empty = {name for name in same - apart if getattr(mine, name) in (None, 0, {}, [])}
    assert not empty

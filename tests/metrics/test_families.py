"""The names are a contract, and what was not measured has no sample."""

import math
import shutil
import subprocess

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.example_snapshots import snapshot
from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.metrics.families import FAMILIES
from vllm_hitratio_plugin.snapshot import DEGRADATIONS, Snapshot

#: The table of issue 2: sample name → labels beyond model_name and engine.
CONTRACT: dict[str, set[str]] = {
    "hitratio_prompt_blocks_total": set(),
    "hitratio_hit_blocks_total": set(),
    "hitratio_prompt_tokens_total": set(),
    "hitratio_hit_tokens_total": set(),
    "hitratio_predicted_hit_blocks_total": {"estimator"},
    "hitratio_curve_hit_blocks_total": {"capacity_blocks"},
    "hitratio_observed_ratio": set(),
    "hitratio_predicted_ratio": {"estimator"},
    "hitratio_predicted_ratio_stderr": {"estimator"},
    "hitratio_infinite_cache_ratio": set(),
    "hitratio_divergence_ratio": set(),
    "hitratio_divergence_ratio_stderr": set(),
    "hitratio_conversation_arrival_rate": set(),
    "hitratio_history_workload_blocks": set(),
    "hitratio_reusable_workload_blocks": set(),
    "hitratio_lifetime_blocks": set(),
    "hitratio_turns_per_conversation": set(),
    "hitratio_characteristic_time_seconds": set(),
    "hitratio_interarrival_seconds_bucket": {"le"},
    "hitratio_interarrival_seconds_sum": set(),
    "hitratio_interarrival_seconds_count": set(),
    "hitratio_capacity_blocks": set(),
    "hitratio_capacity_bytes": set(),
    "hitratio_block_size_tokens": set(),
    "hitratio_in_use_blocks": set(),
    "hitratio_target_ratio": set(),
    "hitratio_target_reachable": set(),
    "hitratio_recommended_capacity_blocks": set(),
    "hitratio_recommended_capacity_bytes": set(),
    "hitratio_window_seconds": set(),
    "hitratio_last_fit_timestamp_seconds": set(),
    "hitratio_fit_duration_seconds": set(),
    "hitratio_degraded": {"reason"},
    "hitratio_build_info": {"version", "vllm_version", "unhashed"},
    "hitratio_index_blocks": set(),
    "hitratio_index_bytes": set(),
}


def page(*snapshots: Snapshot) -> str:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: list(snapshots)))
    return generate_latest(registry).decode()


def samples(*snapshots: Snapshot) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page(*snapshots)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(found: dict[str, list[tuple[dict[str, str], float]]], name: str, **labels: str) -> float:
    (one,) = [value for those, value in found[name] if labels.items() <= those.items()]
    return one


@pytest.fixture(scope="module")
def full() -> Snapshot:
    return snapshot()


@pytest.mark.parametrize("name", CONTRACT)
def test_every_name_of_the_contract_is_there_with_its_labels(name: str, full: Snapshot) -> None:
    found = samples(full)
    assert name in found
    for labels, number in found[name]:
        assert set(labels) == CONTRACT[name] | {"model_name", "engine"}
        assert (labels["model_name"], labels["engine"]) == ("tiny", "0")
        assert not math.isnan(number)


def test_both_estimators_and_the_ceiling(full: Snapshot) -> None:
    found = samples(full)
    for name in ("hitratio_predicted_ratio", "hitratio_predicted_ratio_stderr", "hitratio_predicted_hit_blocks_total"):
        assert {labels["estimator"] for labels, _ in found[name]} == {"reuse_time", "mean_field"}
    assert full.counters is not None
    assert value(found, "hitratio_curve_hit_blocks_total", capacity_blocks="+Inf") == full.counters.ceiling_hit_blocks
    sizes = {labels["capacity_blocks"] for labels, _ in found["hitratio_curve_hit_blocks_total"]} - {"+Inf"}
    assert sizes == {str(size) for size in full.counters.curve_hit_blocks}


def test_capacities_in_blocks_tokens_and_bytes_agree(full: Snapshot) -> None:
    found = samples(full)
    assert value(found, "hitratio_capacity_bytes") == 300 * 4096
    blocks = value(found, "hitratio_recommended_capacity_blocks")
    assert full.estimate is not None
    assert full.estimate.recommended_blocks is not None
    assert blocks == math.ceil(full.estimate.recommended_blocks)
    assert value(found, "hitratio_recommended_capacity_bytes") == blocks * 4096
    assert value(found, "hitratio_recommended_capacity_tokens") == blocks * 16
    assert value(found, "hitratio_target_reachable") == 1


def test_a_target_out_of_reach_has_no_capacity() -> None:
    found = samples(snapshot(target=0.99))
    assert value(found, "hitratio_target_reachable") == 0
    assert value(found, "hitratio_target_ratio") == 0.99
    assert not any(name.startswith("hitratio_recommended") for name in found)


def test_no_target_no_target_metrics() -> None:
    found = samples(snapshot(target=None))
    assert not any(name.startswith(("hitratio_target", "hitratio_recommended")) for name in found)


def test_not_ready_is_absent_not_zero() -> None:
    found = samples(snapshot(prompts=100))
    assert value(found, "hitratio_ready") == 0
    for name in (
        *("hitratio_observed_ratio", "hitratio_predicted_ratio", "hitratio_predicted_ratio_stderr"),
        *(
            "hitratio_infinite_cache_ratio",
            "hitratio_divergence_ratio",
            "hitratio_divergence_ratio_stderr",
            "hitratio_conversation_arrival_rate",
        ),
        *("hitratio_characteristic_time_seconds", "hitratio_target_reachable", "hitratio_recommended_capacity_blocks"),
    ):
        assert name not in found, name
    assert value(found, "hitratio_prompt_blocks_total") > 0


def test_nothing_recorded_no_counters_and_no_ratios() -> None:
    found = samples(
        snapshot(counters=None, estimate=None, fit_time=None, fit_seconds=None, degraded={"prefix_caching_off": "off"})
    )
    assert not any(name.endswith(("_total", "_ratio", "_bucket")) for name in found)
    assert value(found, "hitratio_degraded", reason="prefix_caching_off") == 1
    assert value(found, "hitratio_capacity_blocks") == 300


def test_a_cache_outside_the_model_has_observed_figures_only() -> None:
    found = samples(snapshot(modelled=False, degraded={"not_modelled": "two groups"}))
    assert value(found, "hitratio_observed_ratio") > 0
    assert value(found, "hitratio_hit_tokens_total") > 0
    assert not any("predicted" in name or "curve" in name or "gap" in name for name in found)


def test_every_degradation_is_a_series_from_the_start(full: Snapshot) -> None:
    found = samples(full)
    assert {labels["reason"]: on for labels, on in found["hitratio_degraded"]} == dict.fromkeys(DEGRADATIONS, 0)


def test_bytes_are_absent_where_nobody_knows_them() -> None:
    found = samples(snapshot(block_bytes=None))
    assert "hitratio_capacity_bytes" not in found
    assert "hitratio_recommended_capacity_bytes" not in found
    assert "hitratio_recommended_capacity_blocks" in found


def test_the_histogram_is_cumulative_and_whole(full: Snapshot) -> None:
    found = samples(full)
    buckets = [number for _, number in found["hitratio_interarrival_seconds_bucket"]]
    assert buckets == sorted(buckets)
    assert buckets[-1] == value(found, "hitratio_interarrival_seconds_count")
    assert full.counters is not None
    # Every prompt is a first turn or has a gap.
    assert buckets[-1] == full.counters.requests - full.counters.conversations
    assert value(found, "hitratio_interarrival_seconds_sum") > 0


def test_two_engines_are_two_series_of_one_family(full: Snapshot) -> None:
    other = snapshot(prompts=500, engine="1")
    text = page(full, other)
    assert text.count("# TYPE hitratio_prompt_blocks_total counter") == 1
    assert {labels["engine"] for labels, _ in samples(full, other)["hitratio_prompt_blocks_total"]} == {"0", "1"}


def test_a_snapshot_that_can_not_be_shown_leaves_the_page_alone(full: Snapshot) -> None:
    broken = snapshot(counters="nonsense")
    assert page(broken) == ""


def test_names_are_unique_and_in_base_units() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert family.name.startswith("hitratio_")
        assert family.help.endswith(".")
        assert not family.name.endswith(("_total", "_ms", "_percent"))


def test_promtool_finds_nothing_to_complain_about(full: Snapshot) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([promtool, "check", "metrics"], input=page(full), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""What a page shows: what was not measured has no sample, and a failure takes nothing else away."""

import logging
import math
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.example_snapshots import full_snapshot, page, snapshot
from vllm_hitratio_plugin.metrics import collector
from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.snapshot import DEGRADATIONS, Snapshot

Found = dict[str, list[tuple[dict[str, str], float]]]


def samples(*snapshots: Snapshot) -> Found:
    return found_on(page(*snapshots))


def found_on(text: str) -> Found:
    found: Found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(found: Found, name: str, **labels: str) -> float:
    (one,) = [value for those, value in found[name] if labels.items() <= those.items()]
    return one


@pytest.fixture(scope="module")
def full() -> Snapshot:
    return full_snapshot()


@pytest.fixture(autouse=True)
def nothing_logged_yet() -> Iterator[None]:
    collector._logged.clear()
    yield
    collector._logged.clear()


def test_every_sample_has_the_engines_labels_and_a_number(full: Snapshot) -> None:
    for name, each in samples(full).items():
        for labels, number in each:
            assert (labels["model_name"], labels["engine"]) == ("tiny", "0"), name
            assert not math.isnan(number), name


def test_both_estimators_and_the_infinite_cache(full: Snapshot) -> None:
    found = samples(full)
    for name in ("hitratio_predicted_ratio", "hitratio_predicted_ratio_stderr", "hitratio_predicted_hit_blocks_total"):
        assert {labels["estimator"] for labels, _ in found[name]} == {"reuse_time", "mean_field"}
    assert full.counters is not None
    assert value(found, "hitratio_curve_hit_blocks_total", capacity_blocks="+Inf") == full.counters.ceiling_hit_blocks
    sizes = {labels["capacity_blocks"] for labels, _ in found["hitratio_curve_hit_blocks_total"]} - {"+Inf"}
    assert sizes == {str(size) for size in full.counters.curve_hit_blocks}


def test_capacities_in_blocks_tokens_and_bytes_agree() -> None:
    full = snapshot()
    found = samples(full)
    assert value(found, "hitratio_capacity_bytes") == 300 * 4096
    blocks = value(found, "hitratio_recommended_capacity_blocks")
    assert full.estimate is not None
    assert full.estimate.recommended_blocks is not None
    assert blocks == math.ceil(full.estimate.recommended_blocks) > full.estimate.recommended_blocks
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
    assert value(found, "hitratio_ready") == 1
    assert not any(name.startswith(("hitratio_target", "hitratio_recommended")) for name in found)


def test_not_ready_is_absent_not_zero() -> None:
    found = samples(snapshot(prompts=100))
    assert value(found, "hitratio_ready") == 0
    assert value(found, "hitratio_prompt_blocks_total") > 0
    ratios = {name for name in found if name.endswith(("_ratio", "_ratio_stderr"))}
    assert ratios == {"hitratio_target_ratio"}
    for name in ("conversation_arrival_rate", "characteristic_time_seconds", "target_reachable"):
        assert f"hitratio_{name}" in samples(full_snapshot())
        assert f"hitratio_{name}" not in found


def test_nothing_recorded_no_counters_and_no_ratios() -> None:
    found = samples(
        snapshot(counters=None, estimate=None, fit_time=None, fit_seconds=None, degraded={"prefix_caching_off": "off"})
    )
    assert not any(name.endswith(("_total", "_ratio", "_bucket")) for name in found)
    assert value(found, "hitratio_degraded", reason="prefix_caching_off") == 1
    assert value(found, "hitratio_capacity_blocks") == 300


def test_a_cache_outside_the_model_has_observed_figures_only() -> None:
    found = samples(replace(full_snapshot(), modelled=False, degraded={"not_modelled": "two groups"}))
    assert value(found, "hitratio_observed_ratio") > 0
    assert value(found, "hitratio_hit_tokens_total") > 0
    for word in ("predicted", "curve", "divergence", "shadow", "outcome", "drift", "recommended", "infinite"):
        assert any(word in name for name in samples(full_snapshot())), word
        assert not any(word in name for name in found), word


def test_every_degradation_is_a_series_from_the_start() -> None:
    found = samples(snapshot())
    assert {labels["reason"]: on for labels, on in found["hitratio_degraded"]} == dict.fromkeys(DEGRADATIONS, 0)


def test_bytes_are_absent_where_the_size_of_a_block_is_unknown(full: Snapshot) -> None:
    found = samples(replace(full, block_bytes=None))
    assert "hitratio_capacity_bytes" not in found
    assert "hitratio_recommended_capacity_bytes" not in found
    assert "hitratio_recommended_capacity_blocks" in found


def test_an_engine_without_an_exporter_names_none(full: Snapshot) -> None:
    assert "hitratio_exporter_info" not in samples(replace(full, exporter=None))
    assert value(samples(full), "hitratio_exporter_info", url="http://127.0.0.1:9577") == 1


@pytest.mark.parametrize("name", ["hitratio_interarrival_seconds", "hitratio_fork_depth_blocks"])
def test_histograms_are_cumulative_and_end_at_their_count(name: str, full: Snapshot) -> None:
    found = samples(full)
    buckets = [number for _, number in found[f"{name}_bucket"]]
    assert buckets == sorted(buckets)
    assert found[f"{name}_bucket"][-1][0]["le"] == "+Inf"
    assert buckets[-1] == value(found, f"{name}_count") > 0


def test_the_histograms_count_what_the_counters_do(full: Snapshot) -> None:
    found = samples(full)
    assert full.counters is not None
    # Every request is a first turn or has an interarrival time.
    turns = full.counters.requests - full.counters.conversations
    assert value(found, "hitratio_interarrival_seconds_count") == turns
    assert value(found, "hitratio_interarrival_seconds_sum") == full.counters.interarrival_seconds > 0
    assert value(found, "hitratio_fork_depth_blocks_count") == value(found, "hitratio_forks_total") == 34
    assert value(found, "hitratio_fork_depth_blocks_sum") == 30 * 2 + 4 * 16
    assert value(found, "hitratio_fork_depth_blocks_bucket", le="2") == 30


def test_two_engines_are_two_series_of_one_family(full: Snapshot) -> None:
    other = snapshot(prompts=500, engine="1")
    text = page(full, other)
    assert text.count("# TYPE hitratio_prompt_blocks_total counter") == 1
    assert {labels["engine"] for labels, _ in samples(full, other)["hitratio_prompt_blocks_total"]} == {"0", "1"}


def test_openmetrics_is_written_too(full: Snapshot) -> None:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: [full]))
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    assert 'hitratio_requests_total{engine="0",model_name="tiny"} 2000.0' in text
    assert text.endswith("# EOF\n")


def test_what_can_not_be_shown_is_left_out_logged_once_and_visible(caplog: pytest.LogCaptureFixture) -> None:
    broken = snapshot(counters="a secret prompt", degraded={"hook": "why"})
    with caplog.at_level(logging.WARNING, "vllm.hitratio"):
        found = samples(broken, snapshot(engine="1"))
        assert samples(broken, snapshot(engine="1")) == found
    assert value(found, "hitratio_degraded", engine="0", reason="collector") == 1
    assert value(found, "hitratio_degraded", engine="0", reason="hook") == 1
    assert value(found, "hitratio_degraded", engine="1", reason="collector") == 0
    # The rest of this engine, and the other one, are still there.
    assert value(found, "hitratio_capacity_blocks", engine="0") == 300
    assert value(found, "hitratio_observed_ratio", engine="0") > 0
    assert value(found, "hitratio_requests_total", engine="1") == 2000
    assert [labels["engine"] for labels, _ in found["hitratio_requests_total"]] == ["1"]
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) > 0
    assert "AttributeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "facts",
    [
        {"version": None},
        {"capacity_blocks": "many"},
        {"model_name": None},
        {"degraded": None},
        {"estimate": "x", "counters": 3},
        {"fit_time": object()},
    ],
    ids="-".join,
)
def test_no_snapshot_takes_the_page_down(facts: dict[str, Any]) -> None:
    found = samples(snapshot(100, **facts), snapshot(engine="1"))
    assert value(found, "hitratio_requests_total", engine="1") == 2000


def test_snapshots_that_can_not_be_had_are_visible(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> list[Snapshot]:
        raise PermissionError("a secret folder")

    registry = CollectorRegistry()
    registry.register(SnapshotCollector(fail))
    with caplog.at_level(logging.WARNING, "vllm.hitratio"):
        found = found_on(generate_latest(registry).decode())
        generate_latest(registry)
    assert found == {"hitratio_degraded": [({"model_name": "", "engine": "", "reason": "collector"}, 1.0)]}
    assert [record.getMessage() for record in caplog.records if "PermissionError" not in record.getMessage()] == []
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text


def test_a_page_without_engines_says_that_the_plugin_is_on() -> None:
    """Case 35: otherwise it would look like a server without the plugin."""
    assert samples() == {"hitratio_degraded": [({"model_name": "", "engine": "", "reason": "snapshot"}, 1.0)]}


def test_promtool_finds_nothing_to_complain_about(full: Snapshot) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([promtool, "check", "metrics"], input=page(full), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

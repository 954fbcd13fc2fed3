"""A page of metrics read back: the same page comes out of what was read."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.example_snapshots import full_snapshot, page, snapshot
from vllm_hitratio_plugin.metrics.reader import parse
from vllm_hitratio_plugin.snapshot import ESTIMATORS, Snapshot

VLLM = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 1.0e+06
# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 150000.0
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="tiny"} 4.0
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="2049"} 1.0
"""


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(full_snapshot(), id="full"),
        pytest.param(snapshot(), id="recommendation-with-a-fraction"),
        pytest.param(snapshot(prompts=3), id="not-ready"),
        pytest.param(snapshot(target=None, block_bytes=None, last_reset=None), id="fewer-facts"),
        pytest.param(snapshot(counters=None, estimate=None, degraded={"prefix_caching_off": "off"}), id="caching-off"),
        pytest.param(snapshot(modelled=False, degraded={"not_modelled": "two groups"}), id="not-modelled"),
    ],
)
def test_what_is_read_makes_the_same_page(taken: Snapshot) -> None:
    text = page(taken)
    (read,) = parse(text, now=taken.wall_time).snapshots
    assert page(read) == text
    assert list(read.degraded) == list(taken.degraded)
    assert read.modelled == taken.modelled
    assert (read.counters is None, read.estimate is None) == (taken.counters is None, taken.estimate is None)


def test_engines_stay_apart() -> None:
    two = [snapshot(engine="0"), snapshot(prompts=700, engine="1")]
    read = parse(page(*two), now=0.0).snapshots
    assert [each.engine for each in read] == ["0", "1"]
    assert [each.counters.requests for each in read] == [2000, 700]
    assert [each.estimate.curve for each in read] == [each.estimate.curve for each in two]


def test_deep_forks_are_known_to_the_bounds_of_their_histogram() -> None:
    forks = replace(snapshot().counters, fork_depths={2: 30, 16: 4, 70: 5, 256: 1})
    (read,) = parse(page(snapshot(counters=forks)), now=0.0).snapshots
    assert read.counters.fork_depths == {2: 30, 16: 4, 96: 5, 256: 1}


def test_an_estimator_that_the_page_lacks_is_none() -> None:
    text = "".join(line for line in page(snapshot()).splitlines(keepends=True) if '"mean_field"' not in line)
    (read,) = parse(text, now=0.0).snapshots
    assert read.estimate is not None
    assert read.counters is not None
    assert (list(read.estimate.predicted), read.estimate.predicted["mean_field"]) == (list(ESTIMATORS), None)
    assert read.counters.predicted_hit_blocks["mean_field"] == 0.0


def test_significant_factors_come_in_the_order_of_their_contributions() -> None:
    (read,) = parse(page(full_snapshot()), now=0.0).snapshots
    assert read.estimate.drift_significant == ["arrival_rate", "reuse_times"]
    turned = replace(full_snapshot().estimate, drift_contributions={"arrival_rate": 0.01, "reuse_times": -0.05})
    (read,) = parse(page(snapshot(estimate=turned)), now=0.0).snapshots
    assert read.estimate.drift_significant == ["reuse_times", "arrival_rate"]


def test_vllms_own_figures_stand_next_to_the_plugins() -> None:
    found = parse(page(snapshot()) + VLLM, now=0.0)
    (read,) = found.snapshots
    assert read.vllm is not None
    assert (read.vllm.queries, read.vllm.hits, read.vllm.preemptions) == (1e6, 150_000, 4)
    assert (read.vllm.caching, read.vllm.block_size, read.vllm.capacity_blocks) == (True, 16, 2048)
    assert found.without_plugin == []


def test_a_vllm_without_the_plugin() -> None:
    found = parse(VLLM, now=0.0)
    assert found.snapshots == []
    (plain,) = found.without_plugin
    assert (plain.model_name, plain.engine, plain.hits, plain.capacity_blocks) == ("tiny", "0", 150_000, 2048)
    unsure = parse(VLLM.replace('"2049"', '"None"').replace('enable_prefix_caching="True",', ""), now=0.0)
    assert unsure.without_plugin[0].capacity_blocks is None
    assert unsure.without_plugin[0].caching is None


def test_a_configuration_alone_tells_the_engine() -> None:
    text = "".join(line for line in VLLM.splitlines(keepends=True) if "cache_config_info" in line)
    (plain,) = parse(text, now=0.0).without_plugin
    assert (plain.model_name, plain.engine, plain.hits, plain.capacity_blocks) == ("", "0", None, 2048)


def test_metrics_of_other_programs_are_passed_over() -> None:
    found = parse("# TYPE up gauge\nup 1\n", now=0.0)
    assert (found.snapshots, found.without_plugin) == ([], [])


FULL = page(full_snapshot()) + VLLM
VALUES = st.sampled_from(["NaN", "+Inf", "-Inf", "-1", "0", "2.5", "1e300", "1e19", "x", "", "1 2 3", '"', "{}"])


@given(st.data())
def test_a_broken_page_is_a_value_error_or_a_page(draw: st.DataObject) -> None:
    lines = FULL.splitlines()
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.integers(0, len(lines) - 1))
        line = lines[place]
        change = draw.draw(st.sampled_from(["value", "label", "cut", "drop", "twice"]))
        if change == "value":
            lines[place] = f"{line.rpartition(' ')[0]} {draw.draw(VALUES)}"
        elif change == "label":
            lines[place] = line.replace('="', f'="{draw.draw(VALUES)}', draw.draw(st.integers(1, 3)))
        elif change == "cut":
            start = draw.draw(st.integers(0, len(line)))
            lines[place] = line[:start] + line[draw.draw(st.integers(start, len(line))) :]
        elif change == "drop":
            del lines[place]
        else:
            lines.insert(place, line)
    with suppress(ValueError):
        for read in parse("\n".join(lines) + "\n", now=0.0).snapshots:
            assert ('reason="collector"} 1.0' in page(read)) == ("collector" in read.degraded)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_a_value_error_or_a_page_without_engines(text: str) -> None:
    with suppress(ValueError):
        assert parse(text, now=0.0).snapshots == []


@pytest.mark.parametrize(
    "line",
    [
        'hitratio_requests_total{engine="0",model_name="tiny"} 2.5',
        'hitratio_capacity_blocks{engine="0",model_name="tiny"} NaN',
        'hitratio_capacity_bytes{engine="0",model_name="tiny"} +Inf',
        'hitratio_curve_ratio{capacity_blocks="many",engine="0",model_name="tiny"} 0.5',
        'hitratio_interarrival_seconds_bucket{engine="0",le="soon",model_name="tiny"} 3.0',
        'hitratio_requests_total{engine="0" 3',
    ],
)
def test_what_can_not_be_read_is_a_value_error(line: str) -> None:
    name = line.partition("{")[0]
    kept = "".join(each for each in FULL.splitlines(keepends=True) if not each.startswith(f"{name}{{"))
    assert parse(kept, now=0.0) is not None
    with pytest.raises(ValueError, match=r"\w"):
        parse(kept + line + "\n", now=0.0)

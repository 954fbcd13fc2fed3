"""A page of metrics read back: the same page comes out of what was read."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.example_snapshots import snapshot
from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.metrics.parse import parse
from vllm_hitratio_plugin.snapshot import Snapshot

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


def page(*snapshots: Snapshot) -> str:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: snapshots))
    return generate_latest(registry).decode()


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(snapshot(), id="full"),
        pytest.param(snapshot(prompts=3), id="not-ready"),
        pytest.param(snapshot(target=None, block_bytes=None, last_reset=None, max_model_len=4096), id="fewer-facts"),
        pytest.param(snapshot(counters=None, estimate=None, degraded={"prefix_caching_off": "off"}), id="caching-off"),
        pytest.param(snapshot(modelled=False, degraded={"not_modelled": "two groups"}), id="not-modelled"),
    ],
)
def test_what_is_read_makes_the_same_page(taken: Snapshot) -> None:
    text = page(taken)
    (read,) = parse(text, now=taken.wall_time).snapshots
    assert page(read) == text
    assert list(read.degraded) == list(taken.degraded)


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


def test_vllms_own_figures_stand_beside_the_plugins() -> None:
    (read,) = parse(page(snapshot()) + VLLM, now=0.0).snapshots
    assert read.vllm is not None
    assert (read.vllm.queries, read.vllm.hits, read.vllm.preemptions) == (1e6, 150_000, 4)
    assert (read.vllm.caching, read.vllm.block_size, read.vllm.capacity_blocks) == (True, 16, 2048)
    assert parse(page(snapshot()) + VLLM, now=0.0).without_plugin == []


def test_a_vllm_without_the_plugin() -> None:
    found = parse(VLLM, now=0.0)
    assert found.snapshots == []
    (plain,) = found.without_plugin
    assert (plain.model_name, plain.engine, plain.hits, plain.capacity_blocks) == ("tiny", "0", 150_000, 2048)
    unsure = parse(VLLM.replace('"2049"', '"None"').replace('enable_prefix_caching="True",', ""), now=0.0)
    assert unsure.without_plugin[0].capacity_blocks is None
    assert unsure.without_plugin[0].caching is None


def test_other_peoples_metrics_are_nobody_of_ours() -> None:
    found = parse("# TYPE up gauge\nup 1\n", now=0.0)
    assert (found.snapshots, found.without_plugin) == ([], [])

"""What-ifs: exact values by hand, properties, and each against a replay of the same traffic under that change."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import whatif
from vllm_hitratio_plugin.model.traffic import InterarrivalTable, LagTable, LengthTable, RunTable, TrafficSums
from vllm_hitratio_plugin.planning.block_size import with_block_size
from vllm_hitratio_plugin.planning.capacity_curve import CapacityCurve
from vllm_hitratio_plugin.planning.change import Change
from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.observation import observe
from vllm_hitratio_plugin.planning.replicas import Routing, with_replicas
from vllm_hitratio_plugin.planning.second_tier import SecondTier
from vllm_hitratio_plugin.planning.timing import with_in_use, with_load, with_think_time
from vllm_hitratio_plugin.replay.formats.source import read_source
from vllm_hitratio_plugin.replay.pools.pool import Unhashed
from vllm_hitratio_plugin.replay.trace import Prompt, Trace
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.snapshot_json import from_json, to_json


def demand(own: float = 1.0, in_use_blocks: float = 0.0, horizon: float | None = None) -> Demand:
    """ν = 2 blocks/s; 2 blocks/s come back after 1 s in runs of 2 blocks, 2 blocks/s after 3 s in runs of 4."""
    sums = TrafficSums(seconds=10, requests=25, prompt_blocks=100, written_blocks=20, first_turns=5)
    sums.add(RunTable.of(np.full(10, 1.0), np.full(10, 2.0), own=own))
    sums.add(RunTable.of(np.full(5, 3.0), np.full(5, 4.0), own=own))
    sums.returning_blocks = 40 * own
    sums.in_use_blocks = in_use_blocks * sums.requests
    sums.add(LengthTable.of(np.full(25, 500.0)))
    sums.add(LagTable.of([40.0, 20.0]))
    return Demand(sums, 128, "tail", horizon)


@pytest.mark.parametrize("capacity", [3.0, 7.0, 15.0, 40.0])
def test_load_is_a_smaller_cache(capacity: float) -> None:
    """B.6: d(t) is doubled, so what was behind 6 blocks is behind 12; runs are as long as before."""
    assert with_load(demand(), 2).model.displacement(1.0) == pytest.approx(12)
    tiny = replace(demand().sums, runs=replace(demand().sums.runs, runs=demand().sums.runs.runs * 1e6))
    short = replace(demand(), sums=tiny)
    assert with_load(short, 2).curve.hit_ratio(2 * capacity) == pytest.approx(short.curve.hit_ratio(capacity), abs=1e-6)


def test_think_time_moves_own_reuse_times_and_leaves_shared_ones() -> None:
    assert sorted(with_think_time(demand(), 2).sums.runs.reuse_times) == pytest.approx([2, 6])
    assert sorted(with_think_time(demand(own=0.0), 2).sums.runs.reuse_times) == pytest.approx([1, 3])


def test_think_time_counts_from_prompt_to_prompt() -> None:
    """5 blocks in use at 10 prompt blocks/s are in use for 0.5 s: W = 1.5 becomes 3, so the block is unused for 2.5."""
    assert demand(in_use_blocks=5).use_seconds == pytest.approx(0.5)
    assert sorted(with_think_time(demand(in_use_blocks=5), 2).sums.runs.reuse_times) == pytest.approx([2.5, 6.5])


def test_blocks_in_use_for_less_time_are_unused_for_longer() -> None:
    changed = with_in_use(demand(in_use_blocks=5), 0)
    assert changed.in_use_blocks == 0
    assert sorted(changed.sums.runs.reuse_times) == pytest.approx([1.5, 3.5])


def test_sticky_routing_of_own_history_is_a_larger_cache() -> None:
    changed = with_replicas(demand(), 4, "sticky")
    assert sorted(changed.sums.runs.reuse_times) == pytest.approx([1, 3])
    assert changed.model.displacement(1.0) == pytest.approx(1.5)
    assert changed.sums.prompt_blocks == 100


def test_replicas_use_a_shared_prefix_less_often() -> None:
    assert sorted(with_replicas(demand(own=0.0), 4, "sticky").sums.runs.reuse_times) == pytest.approx([4, 12])


def test_random_routing_finds_the_history_of_earlier_prompts() -> None:
    """Half the prompts find the last one's 40 blocks; a quarter those that the conversation had two prompts ago, 20."""
    changed = with_replicas(demand(), 2, "random").sums
    # On as from the last but one lag to the last: had 40, 20, 10, ...; visited 1/2, 1/4, 1/8, ...
    assert changed.reusable_blocks == pytest.approx(20 / (1 - 1 / 4), rel=1e-3)
    assert changed.written_blocks + changed.reusable_blocks == pytest.approx(60)


def test_more_replicas_than_prompts_find_next_to_nothing() -> None:
    assert with_replicas(demand(), 1_000_000, "random").sums.reusable_blocks < 1e-3


def test_one_replica_is_no_change() -> None:
    routing: Routing
    for routing in ("sticky", "random"):
        changed = with_replicas(demand(), 1, routing)
        assert changed.curve.hit_ratio(9) == pytest.approx(demand().curve.hit_ratio(9))


def test_a_second_tier_by_hand() -> None:
    """All is found in 18 blocks, half of it in 8: 40 and 20 of 100."""
    wide = demand()
    assert wide.curve.hit_ratio(9) == pytest.approx(0.2)
    assert SecondTier(40, exclusive=True).hit_ratio(wide, 9) == pytest.approx(0.2)
    assert SecondTier(40).hit_ratio(wide, 9) == pytest.approx(0.2)
    assert SecondTier(9).hit_ratio(wide, 9) == 0
    assert SecondTier(40).hit_ratio(demand(horizon=30), 9) is None


def test_the_same_block_size_is_no_change() -> None:
    today = demand()
    assert with_block_size(today, 128) is today


def test_larger_blocks_share_less() -> None:
    """Runs of 2 blocks of 128 stand for 256 to 383 tokens: one block of 256 in each; of 4, two."""
    changed = with_block_size(demand(), 256)
    assert sorted(changed.sums.runs.lengths) == pytest.approx([1, 2])
    assert changed.sums.reusable_blocks == pytest.approx(20)


def test_the_curve_knows_its_horizon() -> None:
    curve = CapacityCurve(demand(horizon=10))
    assert curve.hit_ratio(9) == pytest.approx(0.2)
    assert curve.hit_ratio(11) is None
    need = curve.capacity_for(0.3)
    assert need.blocks is None
    assert need.reason is not None
    assert "10 blocks" in need.reason
    unreachable = CapacityCurve(demand()).capacity_for(0.5)
    assert unreachable.blocks is None
    assert "40.0 %" in str(unreachable.reason)


def test_the_knee_is_where_the_slope_falls_under_the_mean() -> None:
    """Most comes back soon, a tenth very late: the knee is where the soon ones are all in."""
    sums = TrafficSums(seconds=100, requests=100, prompt_blocks=2000, written_blocks=1000)
    sums.add(RunTable.of(np.linspace(1, 10, 90), np.full(90, 10.0), own=1.0))
    sums.add(RunTable.of(np.linspace(100, 1000, 10), np.full(10, 10.0), own=1.0))
    made = Demand(sums, 16, "tail")
    knee = CapacityCurve(made).knee
    assert knee is not None
    soon = float(made.model.displacement(10.0))
    assert soon * 0.8 < knee < soon * 1.3


def test_a_flat_curve_has_no_knee() -> None:
    assert CapacityCurve(Demand(TrafficSums(), 16, "tail")).knee is None


def test_what_ifs_survive_the_way_through_json() -> None:
    """A snapshot carries the sums with fewer digits and fewer kinds of runs."""
    random = np.random.default_rng(0)
    sums = TrafficSums(seconds=600, requests=1e5, prompt_blocks=4e7, written_blocks=2e7, hit_blocks=None)
    sums.add(RunTable.of(random.lognormal(4, 2, 100_000), random.integers(1, 400, 100_000).astype(float), own=1.0))
    sums.add(RunTable.of(np.zeros(50), np.full(50, 3.0)))
    sums.add(InterarrivalTable.of(random.lognormal(4, 2, 1000)))
    sums.add(LengthTable.of(random.integers(1, 10_000, 1000).astype(float)))
    snapshot = Snapshot("m", "0", "1", "1", "head", 0.0, 1000, 16, None, True, sums=sums)
    text = to_json(snapshot)
    assert len(text) < 32_000
    again = from_json(text).sums
    assert again is not None
    assert again.hit_blocks is None
    assert again.runs.total_blocks == pytest.approx(sums.runs.total_blocks, rel=1e-4)
    before, after = Demand(sums, 16, "head"), Demand(again, 16, "head")
    for capacity in (1e4, 1e5, 4e5):
        assert after.curve.hit_ratio(capacity) == pytest.approx(before.curve.hit_ratio(capacity), abs=0.004)


def test_own_and_shared_reuse_are_told_apart() -> None:
    """Two conversations with one system prompt of two blocks: the second one's use of it is shared, the rest own."""
    prompts = [
        Prompt(0, 49, ["s0", "s1", "a2"], "a"),
        Prompt(5, 49, ["s0", "s1", "b2"], "b"),
        Prompt(7, 65, ["s0", "s1", "a2", "a3"], "a"),
    ]
    runs = observe(Trace("test", 16, prompts), 100).demand.sums.runs
    # b's 2 after 5 s and a's 2 after 2 s are another's; a's own third block was unused for 7 s.
    assert runs.total_blocks == 5
    assert runs.own_blocks.sum() == 1
    assert runs.reuse_seconds[runs.own_blocks > 0] == pytest.approx([7])


@pytest.mark.parametrize("unhashed", ["tail", "head"])
def test_every_what_if_agrees_with_its_replay(unhashed: Unhashed) -> None:
    """A fast cut of the benchmark: a law that resembles ShareGPT, fewer conversations, so more noise in the replays."""
    cases = list(whatif.generated_cases(unhashed, None, count=6000, warmup=2000, brief=True))
    assert len(cases) == 13
    assert not {case.change: round(case.error, 4) for case in cases if abs(case.error) > whatif.LIMIT}


def test_mooncake_under_change(shared_traces: Path) -> None:
    """Shared prefixes, forks, real times: the first half of the trace."""
    source = shared_traces / "mooncake" / "conversation_trace.jsonl.gz"
    if not source.exists():
        pytest.skip("the Mooncake trace is absent")
    trace = read_source(str(source))
    assert isinstance(trace, Trace)
    half = replace(trace, prompts=trace.prompts[: len(trace.prompts) // 2])
    found = {case.change: case.error for case in whatif.recorded_cases("tail", half, 8000)}
    few_replicas = {change: error for change, error in found.items() if "sticky" not in change}
    assert max(map(abs, few_replicas.values())) < whatif.LIMIT
    # A prefix that few conversations share is cold on every replica once, which the sums do not know of.
    assert max(map(abs, found.values())) < 0.03


def test_turn_lengths_file(shared_traces: Path) -> None:
    source = shared_traces / "sharegpt-lengths" / "turn_lengths_cl100k_split.jsonl.gz"
    if not source.exists():
        pytest.skip("the ShareGPT lengths are absent")
    with gzip.open(source, "rt") as file:
        assert json.loads(file.readline())
    lengths = read_source(str(source))
    assert isinstance(lengths, list)
    base = whatif.sharegpt(lengths, count=3000, warmup=1200)
    seen = observe(base.trace, whatif.CAPACITY, unhashed="tail", window=base.window)
    found = whatif.replicas_hit_ratio(base.trace, whatif.CAPACITY, "tail", base.window, 4, "random")
    assert whatif.predicted(seen, whatif.CAPACITY, Change(replicas=4, routing="random")) == pytest.approx(
        found, abs=whatif.LIMIT
    )

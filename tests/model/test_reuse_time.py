"""The reuse-time estimator: by hand, then what must hold for any traffic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hitratio_plugin.model.hit_ratio_curve import HitRatioCurve
from vllm_hitratio_plugin.model.jackknife import jackknife_stderr, ratio_jackknife
from vllm_hitratio_plugin.model.reuse_time import ReuseTimeModel, local_displacement, slot_curve
from vllm_hitratio_plugin.model.traffic import RunTable, TrafficSums


def sums(
    *runs: tuple[int, float, float], seconds: float = 10, written: float = 20, prompts: float = 100
) -> TrafficSums:
    """(how many, blocks, reuse time in s)."""
    made = TrafficSums(seconds=seconds, requests=5, prompt_blocks=prompts, written_blocks=written)
    for count, blocks, reuse_time in runs:
        made.add(RunTable.of(np.full(count, reuse_time), np.full(count, blocks)))
    return made


#: ν = 2, a = 2 blocks/s idle for 1 s and 2 blocks/s idle for 3 s.
BY_HAND = ((10, 2.0, 1.0), (5, 4.0, 3.0))


def test_displacement_by_hand() -> None:
    """d' = 2 + 4 up to 1 s, 2 + 2 up to 3 s, then 2: the flow form of the mean field's own example."""
    flow = ReuseTimeModel(sums(*BY_HAND))
    assert flow.displacement(np.array([0, 0.5, 1, 2, 3, 5])) == pytest.approx([0, 3, 6, 10, 14, 18])
    assert [flow.characteristic_time(n) for n in (0, 3, 6, 10, 14, 18)] == pytest.approx([0, 0.5, 1, 2, 3, 5])


@pytest.mark.parametrize(
    ("capacity", "hits"), [(6, 0), (7, 10), (8, 20), (14, 20), (15, 25), (16, 30), (18, 40), (1000, 40)]
)
def test_hits_by_hand(capacity: float, hits: float) -> None:
    """Ten runs of 2 behind 6 blocks, five of 4 behind 14: a suffix goes before its prefix."""
    assert ReuseTimeModel(sums(*BY_HAND)).curve.hit_ratio(capacity) == pytest.approx(hits / 100)


@pytest.mark.parametrize(("target", "capacity"), [(0.05, 6.5), (0.1, 7), (0.2, 8), (0.25, 15), (0.3, 16), (0.4, 18)])
def test_capacity_for_a_target_by_hand(target: float, capacity: float) -> None:
    assert ReuseTimeModel(sums(*BY_HAND)).curve.capacity_for(target) == pytest.approx(capacity)


def test_out_of_reach_is_not_a_number() -> None:
    flow = ReuseTimeModel(sums(*BY_HAND))
    assert flow.ceiling == 0.4
    assert flow.curve.capacity_for(0.401) is None


def test_blocks_in_use_are_ahead_of_everything() -> None:
    busy = sums(*BY_HAND)
    busy.in_use_blocks = 3 * busy.requests
    flow, idle = ReuseTimeModel(busy), ReuseTimeModel(sums(*BY_HAND))
    assert flow.in_use_blocks == 3
    for capacity in (3, 9, 12.5, 18, 40):
        assert flow.curve.hit_ratio(capacity) == idle.curve.hit_ratio(capacity - 3)
        assert flow.characteristic_time(capacity) == pytest.approx(idle.characteristic_time(capacity - 3))
    assert flow.characteristic_time(2) == 0
    assert flow.curve.capacity_for(0.25) == pytest.approx(18)


def test_held_runs_hit_at_any_capacity() -> None:
    flow = ReuseTimeModel(sums((4, 5.0, 0.0), *BY_HAND))
    assert flow.curve.hit_ratio(0) == pytest.approx(0.2)
    assert flow.curve.hit_ratio(7) == pytest.approx(0.3)
    assert flow.curve.capacity_for(0.15) == 0
    assert flow.curve.capacity_for(0.3) == pytest.approx(7)


def test_nothing_seen_is_none() -> None:
    flow = ReuseTimeModel(TrafficSums())
    assert flow.curve.hit_ratio(10) is None
    assert flow.ceiling is None
    assert flow.curve.capacity_for(0.1) is None
    assert flow.characteristic_time(10) == np.inf


def test_nothing_written_displaces_nothing() -> None:
    """All traffic is hits on three blocks: they stay in any cache that holds them."""
    flow = ReuseTimeModel(sums((10, 3.0, 1.0), written=0))
    assert flow.characteristic_time(100) == np.inf
    assert flow.curve.hit_ratio(6) == pytest.approx(0.3)


def test_weights_are_blocks_not_requests() -> None:
    """One long run idle for long against many short ones: F by blocks, not by turns (docs/model.md#flow-form)."""
    flow = ReuseTimeModel(sums((1, 90.0, 8.0), (10, 1.0, 1.0), written=10))
    assert flow.curve.hit_ratio(30) == pytest.approx(0.1)
    assert flow.curve.hit_ratio(1000) == pytest.approx(1)


def test_local_displacement_of_steady_traffic() -> None:
    """ν = 5 and a = 10 blocks/s with gaps of 25 s: 375 blocks, less the run's own two accesses."""
    displaced = local_displacement([sums((100, 1.0, 25.0), written=50) for _ in range(6)])
    assert displaced == pytest.approx([5 * 25 + 10 * 25 - 2 * 1 * 5 / 10])


def test_local_displacement_sees_only_the_time_that_the_gap_spans() -> None:
    """A burst before the block's release moved nothing ahead of it."""

    def displaced(*written: float) -> float:
        (blocks,) = local_displacement([sums((10, 1.0, 12.0), written=each) for each in written])
        return float(blocks)

    # ν = 1, a = 1 block/s, less the run's own two accesses.
    assert displaced(10, 10, 10, 10, 10) == pytest.approx(12 + 12 - 2 * 5 / 10)
    assert displaced(10_000, 10_000, 10, 10, 10) == displaced(10, 10, 10, 10, 10)
    assert displaced(10, 10, 10, 10_000, 10) == pytest.approx(23 + 999 * 7)


def test_jackknife_by_hand() -> None:
    uncertain = ratio_jackknife(np.array([1.0, 2.0, 3.0]), np.array([10.0, 10.0, 10.0]))
    assert uncertain.value == pytest.approx(0.2)
    assert uncertain.stderr == pytest.approx(np.sqrt(2 / 3 * (0.05**2 + 0.05**2)))
    assert jackknife_stderr(np.array([0.3])) is None
    assert ratio_jackknife(np.zeros(3), np.zeros(3)).value is None


def test_one_slot_has_no_standard_error() -> None:
    assert ratio_jackknife(np.array([1.0]), np.array([4.0])).stderr is None


runs = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.integers(1, 200).map(float),
        st.one_of(st.just(0.0), st.floats(0.01, 5000, allow_nan=False)),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(runs, st.floats(0, 1e4), st.floats(0, 500))
def test_more_capacity_never_hits_less_and_never_beyond_the_ceiling(
    pieces: list[tuple[int, float, float]], written: float, pinned: float
) -> None:
    blocks = sum(count * size for count, size, _ in pieces)
    made = sums(*pieces, written=written, prompts=blocks + written + 1)
    made.in_use_blocks = pinned * made.requests
    flow = ReuseTimeModel(made)
    ratios = [flow.curve.hit_ratio(capacity) for capacity in np.geomspace(1, 1e7, 60)]
    assert all(ratio is not None for ratio in ratios)
    known = [ratio for ratio in ratios if ratio is not None]
    assert known == sorted(known)
    assert flow.ceiling is not None
    assert known[-1] <= flow.ceiling * (1 + 1e-12)
    assert np.all(np.diff(flow.displacement(np.linspace(0, 6000, 100))) >= -1e-9)


@settings(deadline=None)
@given(runs.filter(bool), st.floats(1, 1e4), st.floats(0, 500), st.floats(0.001, 1))
def test_the_inverse_is_exact_and_least(
    pieces: list[tuple[int, float, float]], written: float, pinned: float, share: float
) -> None:
    blocks = sum(count * size for count, size, _ in pieces)
    made = sums(*pieces, written=written, prompts=blocks + written)
    made.in_use_blocks = pinned * made.requests
    flow = ReuseTimeModel(made)
    assert flow.ceiling is not None
    target = share * flow.ceiling
    capacity = flow.curve.capacity_for(target)
    assert capacity is not None
    assert flow.curve.hit_ratio(capacity) == pytest.approx(target, rel=1e-6) or capacity == flow.in_use_blocks
    if capacity > flow.in_use_blocks + 1e-3:
        less = flow.curve.hit_ratio(capacity - 1e-3)
        assert less is not None
        assert less <= target


@settings(deadline=None)
@given(runs, runs)
def test_two_halves_are_the_whole(
    first: list[tuple[int, float, float]], second: list[tuple[int, float, float]]
) -> None:
    half, other, whole = sums(*first), sums(*second), sums(*first, *second, seconds=20, written=40, prompts=200)
    both = half + other
    whole.requests = 10
    for column in ("bins", "runs", "blocks", "reuse_seconds", "own_blocks"):
        assert getattr(both.runs, column) == pytest.approx(getattr(whole.runs, column))
    assert (both.seconds, both.reuse_runs, both.reusable_blocks) == (20, whole.reuse_runs, whole.reusable_blocks)
    assert ReuseTimeModel(both).curve.hit_ratio(100) == pytest.approx(ReuseTimeModel(whole).curve.hit_ratio(100))


@settings(deadline=None)
@given(runs.filter(bool), st.floats(1, 1e3), st.integers(2, 5))
def test_more_traffic_is_less_cache(pieces: list[tuple[int, float, float]], written: float, times: int) -> None:
    """k times the traffic at N lives as long as today's at N/k (B.6); ratios differ by the runs' own size only."""
    one = sums(*pieces, written=written, prompts=1e5)
    many = TrafficSums.total([one] * times)
    many.seconds = one.seconds
    flow, busy = ReuseTimeModel(one), ReuseTimeModel(many)
    for capacity in (10.0, 300.0, 1e4):
        assert busy.characteristic_time(times * capacity) == pytest.approx(flow.characteristic_time(capacity))
    small = sums(*((count, 0.001 * size, gap) for count, size, gap in pieces), written=written, prompts=1e5)
    # Runs that are short beside all that is ahead of them leave no difference.
    crowd = TrafficSums.total([small] * times)
    crowd.seconds = small.seconds
    curve = np.array(
        [ReuseTimeModel(small).curve.hit_ratio(capacity) for capacity in np.geomspace(1, 1e6, 30)], dtype=float
    )
    crowded = np.array(
        [ReuseTimeModel(crowd).curve.hit_ratio(times * capacity) for capacity in np.geomspace(1, 1e6, 30)], dtype=float
    )
    near = np.array(
        [ReuseTimeModel(small).curve.hit_ratio(capacity + 0.5) for capacity in np.geomspace(1, 1e6, 30)], dtype=float
    )
    assert np.all(crowded >= curve - 1e-12)
    assert np.all(crowded <= near + 1e-12)


def test_the_curve_of_several_slots_is_their_sum() -> None:
    parts = [sums(*BY_HAND), sums((3, 7.0, 20.0))]
    curves = [slot_curve(part, []) for part in parts]
    whole = HitRatioCurve.total(curves)
    capacities = np.array([5.0, 20.0, 60.0])
    assert whole.hit_blocks(capacities) == pytest.approx(
        curves[0].hit_blocks(capacities) + curves[1].hit_blocks(capacities)
    )
    assert whole.prompt_blocks == 200


def test_rows_are_as_many_as_there_are_kinds_of_runs() -> None:
    """Memory: a million runs of like gaps and lengths are a few hundred rows."""
    random = np.random.default_rng(1)
    made = TrafficSums()
    for _ in range(10):
        made.add(RunTable.of(random.exponential(100, 100_000), random.integers(1, 200, 100_000).astype(float)))
    assert len(made.runs.bins) < 600 * 64 / 4
    assert made.reuse_runs == 1_000_000

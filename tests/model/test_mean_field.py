import math
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vllm_hitratio_plugin.model.interarrival import Empirical, Exponential, Interarrival, Parametric
from vllm_hitratio_plugin.model.mean_field import MeanField
from vllm_hitratio_plugin.model.workload import Workload

N = 2275
PAPER = [
    (1.5, 90, 0.247641, 50.2608),
    (1.5, 135, 0.171784, 47.5413),
    (1.5, 240, 0.099654, 45.3548),
    (0.5, 135, 0.425302, 179.2289),
    (2.0, 135, 0.131183, 34.7027),
]


def paper(rate: float = 1.5) -> Workload:
    return Workload(rate, history_workload=38.9092, reusable_workload=22.5178, lifetime_blocks=12.9220, turns=4.4694)


@pytest.mark.parametrize(("rate", "mean", "ratio", "seconds"), PAPER)
def test_reference_values(rate: float, mean: float, ratio: float, seconds: float) -> None:
    field = MeanField(paper(rate), Exponential(mean))
    assert field.hit_ratio(N) == pytest.approx(ratio, abs=5e-7)
    assert field.characteristic_time(N) == pytest.approx(seconds, abs=5e-5)


def test_empirical_by_hand() -> None:
    # ν = 2, a = 4 blocks/s, gaps 1 and 3 s: d(1) = 6, d(3) = 6 + 2·2 + 4·1 = 14, then 2 a second.
    field = MeanField(Workload(2.0, 4.0, 2.0, 1.0), Empirical([1.0, 3.0]))
    assert field.displacement(np.array([0.0, 0.5, 1.0, 2.0, 3.0, 5.0])).tolist() == [0, 3, 6, 10, 14, 18]
    assert field.displacement_rate(np.array([0.0, 1.0, 2.0, 3.0])).tolist() == [6, 4, 4, 2]
    assert [field.characteristic_time(n) for n in (0, 3, 6, 10, 14, 18)] == [0, 0.5, 1, 2, 3, 5]
    assert [field.hit_ratio(n) for n in (0, 5.9, 6, 13.9, 14, 99)] == [0, 0, 0.25, 0.25, 0.5, 0.5]
    assert [field.capacity_for(h).blocks for h in (0, 0.1, 0.25, 0.26, 0.5)] == [0, 6, 6, 14, 14]
    assert field.capacity_for(0.25).characteristic_time == 1


def test_out_of_reach_is_never_a_number() -> None:
    field = MeanField(paper(), Exponential(135))
    answer = field.capacity_for(0.6)
    assert answer.blocks is None
    assert answer.characteristic_time is None
    assert "0.6 is above the reuse potential 0.578727" in str(answer.reason)
    limit = field.capacity_for(22.5178 / 38.9092)
    assert limit.blocks is None
    assert "unlimited" in str(limit.reason)
    assert MeanField(paper(), Empirical([1.0, 9.0])).capacity_for(22.5178 / 38.9092).blocks is not None


def test_no_reuse_no_traffic_no_new_blocks() -> None:
    single = MeanField(Workload(2.0, 3.0, 0.0, 3.0), Exponential(135))
    assert single.characteristic_time(60) == 10  # N / ν
    assert single.hit_ratio(60) == 0
    assert single.capacity_for(0.1).blocks is None

    for silent in (MeanField(paper(0.0), Exponential(135)), MeanField(Workload(1.0, 0, 0, 0), Empirical([1.0]))):
        assert silent.characteristic_time(N) is None
        assert silent.hit_ratio(N) is None
        assert silent.reuse_potential is None
        assert silent.capacity_for(0.1).blocks is None
        assert "No traffic" in str(silent.capacity_for(0.1).reason)

    for law in (
        Exponential(10.0),
        Empirical([5.0, 15.0]),
        Parametric("gamma", 10.0, 2.0),
    ):  # everything returns: d ends at a(∞) E[W]
        closed = MeanField(Workload(1.0, 5.0, 5.0, 0.0), law)
        assert closed.characteristic_time(51) == math.inf
        assert closed.hit_ratio(51) == 1.0
        seconds = closed.characteristic_time(40)
        assert seconds is not None
        assert closed.displacement(seconds) == pytest.approx(40, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Workload(-1, 3, 1, 1), "arrival_rate must be finite and at least 0, got -1"),
        (lambda: Workload(1, 3, 4, 1), r"reusable_workload \(a part of history_workload\) .* at most 3, got 4"),
        (lambda: Workload(1, 3, 1, math.nan), "lifetime_blocks .* got nan"),
        (lambda: Workload(1, 3, 1, 1, 0.5), "turns must be finite and at least 1, got 0.5"),
        (lambda: MeanField(paper(), Exponential(1)).hit_ratio(-1), "capacity_blocks .* at least 0, got -1"),
        (lambda: MeanField(paper(), Exponential(1)).hit_ratio(math.inf), "finite .* got inf"),
        (lambda: MeanField(paper(), Exponential(1)).capacity_for(30), "not a percentage.* at most 1, got 30"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


laws = st.one_of(
    st.floats(0.1, 1e4).map(Exponential),
    st.tuples(st.floats(1, 1e3), st.floats(0.1, 2)).map(lambda a: Parametric("lognormal", *a)),
    st.tuples(st.floats(1, 1e3), st.floats(0.3, 5)).map(lambda a: Parametric("gamma", *a)),
    st.tuples(st.floats(1, 1e3), st.floats(0.4, 5)).map(lambda a: Parametric("weibull", *a)),
    st.lists(st.floats(0, 1e4, allow_subnormal=False), min_size=1, max_size=30).map(Empirical),
)
workloads = st.builds(
    lambda rate, lifetime, reusable: Workload(rate, lifetime + reusable, reusable, lifetime),
    st.floats(1e-3, 1e3),
    st.floats(0.1, 1e3),
    st.floats(0, 1e4, allow_subnormal=False),
)
capacities = st.floats(1e-2, 1e7)


@given(workloads, laws, capacities)
def test_inverse_of_displacement(workload: Workload, law: Interarrival, blocks: float) -> None:
    field = MeanField(workload, law)
    seconds = field.characteristic_time(blocks)
    assert seconds is not None
    assert field.displacement(seconds) == pytest.approx(blocks, rel=1e-9)
    assert field.displacement_rate(seconds) >= workload.new_block_rate * (1 - 1e-12)


@given(workloads, laws, capacities, capacities)
def test_monotone_and_below_the_ceiling(workload: Workload, law: Interarrival, one: float, other: float) -> None:
    field = MeanField(workload, law)
    less, more = field.hit_ratio(min(one, other)), field.hit_ratio(max(one, other))
    assert less is not None
    assert more is not None
    assert field.reuse_potential is not None
    assert 0 <= less <= more + 1e-12
    assert more <= field.reuse_potential


@given(workloads, laws, capacities, st.floats(0.01, 100))
def test_load_equivalence(workload: Workload, law: Interarrival, blocks: float, load: float) -> None:
    field = MeanField(workload, law)
    loaded = MeanField(replace(workload, arrival_rate=load * workload.arrival_rate), law)
    seconds = field.characteristic_time(blocks / load)
    assert loaded.characteristic_time(blocks) == pytest.approx(seconds, rel=1e-9)
    if not isinstance(law, Empirical):  # rounding of N / load may fall to the other side of a step
        assert loaded.hit_ratio(blocks) == pytest.approx(field.hit_ratio(blocks / load), abs=1e-9)


@given(workloads, laws, st.floats(0, 1))
def test_capacity_round_trip(workload: Workload, law: Interarrival, share: float) -> None:
    field = MeanField(workload, law)
    assert field.reuse_potential is not None
    target = share * field.reuse_potential
    answer = field.capacity_for(target)
    if isinstance(law, Empirical):
        assert answer.blocks is not None
        reached = field.hit_ratio(answer.blocks)
        assert reached is not None
        assert reached >= target
        larger = field.hit_ratio(math.ceil(answer.blocks))
        assert larger is not None
        assert larger >= target
        if answer.blocks > 0 and target > 0:  # and no smaller capacity would do
            smaller = field.hit_ratio(answer.blocks * (1 - 1e-6))
            assert smaller is not None
            assert smaller < target or answer.characteristic_time == 0 or _crowded(law, answer.characteristic_time)
    elif answer.blocks is None:
        assert share > 1 - 1e-12
    else:
        assert field.hit_ratio(answer.blocks) == pytest.approx(target, abs=1e-9)


def _crowded(law: Empirical, seconds: float | None) -> bool:
    """Another gap within the millionth part that the test takes away."""
    assert seconds is not None
    return int(np.sum(np.abs(law.times - seconds) <= 1e-3 * seconds)) > 1


@given(workloads, st.floats(0.1, 1e5), st.floats(1e-3, 1e8))
def test_lambert_w_agrees_with_the_root_finder(workload: Workload, mean: float, blocks: float) -> None:
    """A Weibull law of shape 1 is exponential, and has no closed form of its own."""
    assume(workload.reusable_workload > 0)
    found = MeanField(workload, Parametric("weibull", mean, 1.0)).characteristic_time(blocks)
    assert MeanField(workload, Exponential(mean)).characteristic_time(blocks) == pytest.approx(found, rel=1e-9)


def test_the_empirical_form_converges_to_the_law() -> None:
    law = Parametric("lognormal", 135.0, 1.0)
    gaps = law.sample(np.random.default_rng(1), 100_000)
    assert MeanField(paper(), Empirical(gaps)).hit_ratio(N) == pytest.approx(
        MeanField(paper(), law).hit_ratio(N), abs=2e-3
    )


def test_ten_thousand_gaps_take_less_than_two_milliseconds() -> None:
    gaps = np.random.default_rng(0).exponential(135, 10_000)
    weights = np.random.default_rng(1).integers(1, 40, 10_000)

    def once() -> float:
        start = time.perf_counter()
        field = MeanField(paper(), Empirical(gaps, weights))
        field.characteristic_time(N)
        field.hit_ratio(N)
        return time.perf_counter() - start

    assert min(once() for _ in range(20)) < 2e-3


def test_the_serving_path_does_not_import_scipy() -> None:
    code = (
        "import sys; from vllm_hitratio_plugin.model.mean_field import MeanField as M;"
        "from vllm_hitratio_plugin.model.interarrival import Empirical;"
        "from vllm_hitratio_plugin.model.workload import Workload;"
        "f = M(Workload(1, 3, 1, 1), Empirical([1, 2, 3])); f.hit_ratio(3); f.capacity_for(.2);"
        "assert not any(m.split('.')[0] == 'scipy' for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

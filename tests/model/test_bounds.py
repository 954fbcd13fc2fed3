import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from vllm_hitratio_plugin.model.bounds import FiniteBounds
from vllm_hitratio_plugin.model.conversation_sample import ConversationSample
from vllm_hitratio_plugin.model.interarrival import Empirical, Exponential
from vllm_hitratio_plugin.model.mean_field import MeanField

LAW = Exponential(10.0)
HAND = ConversationSample([[2, 8, 16], [3], [1, 4]])


def drawn(conversations: int = 400) -> ConversationSample:
    rng = np.random.default_rng(5)
    return ConversationSample(
        [np.cumsum(rng.integers(1, 4, turns)).tolist() for turns in rng.integers(1, 5, conversations)]
    )


def moment_generating_function(sample: ConversationSample, theta: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """E[e^{θB}] of the sample, (n,)."""
    return np.asarray(np.exp(np.multiply.outer(np.asarray(theta), sample.lifetimes)).mean(axis=-1))


def test_constants_by_hand() -> None:
    bounds = FiniteBounds(HAND, LAW, arrival_rate=50.0, capacity_blocks=100.0, hashable=False)
    assert bounds.unit_rate == 0.5
    assert bounds.drift == 0.5 * 23 / 3
    assert bounds.slope == pytest.approx(0.5 * (23 / 3 + 11 / 3))
    assert bounds.second_moment == pytest.approx((256 + 9 + 16) / 3)
    assert bounds.turns_second_moment == pytest.approx((2 * 256 + 16) / 3)
    assert bounds.variance(4.0) == pytest.approx(0.5 * 4 * 281 / 3 + 0.5 * 10 * 528 / 3)  # (42)
    # d / N of the physical system is the paper's d: T_C solves d(T_C) = 1.
    field = MeanField(HAND.workload(0.5, hashable=False), LAW)
    assert field.displacement(bounds.characteristic_time) == pytest.approx(1.0)


def test_displacement_bounds_by_hand() -> None:
    bounds = FiniteBounds(HAND, LAW, 50.0, 100.0, hashable=False)
    v = bounds.variance(4.0)
    assert bounds.displacement(4.0, 0.2).value == pytest.approx(v / (100 * 0.04))  # (16)
    path = bounds.displacement_path(4.0, 0.2)  # (17)
    assert path.value == pytest.approx(16 * v / 9 * (2 + 4 * bounds.slope * 4.0) / (100 * 0.008))
    assert path.vacuous


def test_eviction_time_is_the_formula_at_the_theta_it_names() -> None:
    bounds = FiniteBounds(HAND, LAW, 50, 100)
    epsilon = 0.5 * bounds.characteristic_time
    bound = bounds.eviction_time(2, epsilon)  # (22)
    assert bound.theta is not None
    spread = 18 * bounds.variance(bounds.characteristic_time + epsilon) / (100 * (bounds.drift * epsilon) ** 2)
    size = float(moment_generating_function(HAND, [bound.theta])[0]) / (2 / 3)
    assert bound.value == pytest.approx(spread + size * math.exp(-bound.theta * bounds.drift / 3 * 100 * epsilon))
    assert bound.terms[0] == pytest.approx(spread)


def test_theta_is_the_best() -> None:
    bounds = FiniteBounds(HAND, LAW, 5.0, 10.0)  # so small that the term with θ is not 0
    epsilon = 0.9 * bounds.characteristic_time
    found = bounds.eviction_time(1, epsilon).terms[1]
    grid = np.linspace(1e-4, 5, 20_001)
    least = np.min(moment_generating_function(HAND, grid) * np.exp(-grid * bounds.drift / 3 * 10 * epsilon))
    assert found == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("hashable", [True, False])
@pytest.mark.parametrize("tail", ["moment", "exact"])
def test_hit_ratio_is_the_formula_at_the_parameters_it_names(hashable: bool, tail: str) -> None:
    sample = drawn()
    bounds = FiniteBounds(sample, LAW, 5e5, 1e6, hashable=hashable)
    bound = bounds.hit_ratio(tail=tail)  # type: ignore[arg-type]
    assert bound.equation == (33 if hashable else 26)
    assert bound.epsilon is not None
    assert bound.turn is not None
    assert 0 < bound.epsilon < bounds.characteristic_time
    reusable = sample.reusable_by_turn(hashable=hashable)
    p = bounds.eviction_time(bound.turn, bound.epsilon).value
    k = sample.root_second_moment_by_turn(hashable=hashable)[: bound.turn].sum()
    if tail == "moment":
        assert bound.tail_theta is not None
        b = sample.lifetimes
        rest = np.mean(b**2 * np.exp(bound.tail_theta * (b - bound.turn - 2)))
    else:
        rest = reusable[bound.turn :].sum()
    expected = LAW.lipschitz * bound.epsilon * reusable[: bound.turn].sum() + k * math.sqrt(p) + 2 * rest
    assert bound.value == pytest.approx(expected / sample.history_workload)


def test_the_search_beats_a_brute_one() -> None:
    sample = drawn()
    bounds = FiniteBounds(sample, LAW, 5e5, 1e6)
    reusable, roots = sample.reusable_by_turn(hashable=True), sample.root_second_moment_by_turn(hashable=True)
    best = min(
        (
            LAW.lipschitz * epsilon * reusable[:j].sum()
            + roots[:j].sum() * math.sqrt(bounds.eviction_time(j, epsilon).value)
            + 2 * reusable[j:].sum()
        )
        / sample.history_workload
        for j in range(1, len(reusable))
        for epsilon in bounds.characteristic_time * np.linspace(0.01, 0.99, 99)
    )
    assert bounds.hit_ratio(tail="exact").value <= best * 1.001


def test_bounds_decrease_with_size_at_proportional_traffic() -> None:
    sample = drawn()
    systems = [FiniteBounds(sample, LAW, 0.5 * n, n) for n in (1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)]
    for system in systems[1:]:
        assert system.characteristic_time == pytest.approx(systems[0].characteristic_time)
    seconds = systems[0].characteristic_time
    for values in (
        [s.displacement(seconds, 0.1).value for s in systems],
        [s.displacement_path(seconds, 0.1).value for s in systems],
        [s.eviction_time(2, 0.2 * seconds).value for s in systems],
        [s.hit_ratio(tail="exact").value for s in systems],
    ):
        assert all(later < earlier for earlier, later in pairwise(values))
        assert values[-1] < 0.1
    moment = [s.hit_ratio().value for s in systems]
    assert all(later <= earlier for earlier, later in pairwise(moment))
    assert systems[0].hit_ratio(tail="exact").vacuous
    assert not systems[-1].hit_ratio(tail="exact").vacuous
    # E[B² e^{θB}] e^{-θ(J+2)} does not fall with N, and lifetimes are longer in blocks than in turns.
    assert systems[-1].hit_ratio().vacuous


def test_the_displacement_bound_holds_in_simulation() -> None:
    """(47), (48) and (16) against draws of the Poisson representation (40)."""
    sample, n, t, epsilon, runs, lookback = drawn(), 4000.0, 1.0, 0.2, 60, 150.0
    bounds = FiniteBounds(sample, LAW, 0.1 * n, n, hashable=False)
    rng = np.random.default_rng(2)
    turns = int(sample.lengths.max())
    histories = np.zeros((sample.lengths.size, turns))
    histories[np.arange(turns) < sample.lengths[:, None]] = sample.sizes
    displaced = np.empty(runs)
    for run in range(runs):
        which = rng.integers(sample.lengths.size, size=rng.poisson(0.1 * n * (lookback + t)))
        times = rng.uniform(-lookback, t, (which.size, 1)) + np.cumsum(
            np.hstack([np.zeros((which.size, 1)), LAW.sample(rng, which.size * (turns - 1)).reshape(which.size, -1)]), 1
        )
        accessed = (times > 0) & (times <= t)
        # The last access up to t has moved all that the conversation holds.
        displaced[run] = np.max(histories[which] * accessed, axis=1).sum() / n
    mean = MeanField(sample.workload(0.1 * n, hashable=False), LAW).displacement(t) / n
    assert displaced.mean() == pytest.approx(mean, abs=4 * displaced.std() / math.sqrt(runs))
    assert 0 < n * displaced.var() <= bounds.variance(t)
    bound = bounds.displacement(t, epsilon)
    assert not bound.vacuous
    assert np.mean(np.abs(displaced - mean) > epsilon) <= bound.value


def test_what_has_no_bound_says_why() -> None:
    empirical = FiniteBounds(HAND, Empirical([1.0, 20.0]), 5e5, 1e6).hit_ratio()
    assert empirical.value == math.inf
    assert empirical.vacuous
    assert "Lipschitz" in str(empirical.reason)
    single = FiniteBounds(ConversationSample([[3], [4]]), LAW, 5.0, 10.0).hit_ratio()
    assert single.value == 0
    assert "second turn" in str(single.reason)
    short = FiniteBounds(ConversationSample([[1, 1, 1]]), LAW, 5.0, 10.0)
    assert "more turns than blocks" in str(short.hit_ratio().reason)
    assert math.isfinite(short.hit_ratio(tail="exact").value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FiniteBounds(HAND, LAW, 0.0, 10.0), "arrival_rate .* above 0, got 0.0"),
        (lambda: FiniteBounds(HAND, LAW, 1.0, 0.0), "capacity_blocks .* at least 1, got 0.0"),
        (lambda: FiniteBounds(HAND, LAW, 1.0, 10.0).eviction_time(4, 0.1), "1 to 3, got 4"),
        (lambda: FiniteBounds(HAND, LAW, 1.0, 10.0).eviction_time(1, 1e9), "below the characteristic time"),
        (lambda: FiniteBounds(HAND, LAW, 1.0, 10.0).displacement_path(1.0, 1.5), "at most 1, got 1.5"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_all_bounds_are_of_one_deviation() -> None:
    """A tenth of the cache, or of T_C, within T_C; each as it is by itself."""
    bounds = FiniteBounds(drawn(), LAW, arrival_rate=200.0, capacity_blocks=4000.0)
    time = bounds.characteristic_time
    assert bounds.all() == {
        "displacement": bounds.displacement(time, 0.1),
        "displacement_path": bounds.displacement_path(time, 0.1),
        "eviction_time": bounds.eviction_time(1, 0.1 * time),
        "hit_ratio": bounds.hit_ratio(),
        "hit_ratio_exact_tail": bounds.hit_ratio(tail="exact"),
    }
    assert bounds.all(0.2)["displacement"].epsilon == 0.2

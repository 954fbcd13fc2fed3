import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from vllm_hitratio_plugin.model.interarrival import (
    Empirical,
    Exponential,
    Interarrival,
    Parametric,
)

SMOOTH: list[Interarrival] = [
    Exponential(135.0),
    Parametric("lognormal", 140.0, 1.3),
    Parametric("lognormal", 135.0, 0.4),
    Parametric("gamma", 100.0, 2.5),
    Parametric("gamma", 135.0, 0.6),
    Parametric("weibull", 90.0, 1.7),
    Parametric("weibull", 135.0, 0.5),
]
times = st.lists(st.floats(0, 1e4, allow_subnormal=False), min_size=1, max_size=40)


def name(law: Interarrival) -> str:
    return "empirical" if isinstance(law, Empirical) else str(law)


def test_exponential_values() -> None:
    law = Exponential(135.0)
    assert law.cdf(135.0) == pytest.approx(1 - math.exp(-1), rel=1e-15)
    assert law.tail_integral(135.0) == pytest.approx(135 * (1 - math.exp(-1)), rel=1e-15)
    assert law.quantile(0.5) == pytest.approx(135 * math.log(2), rel=1e-15)
    assert law.lipschitz == 1 / 135


def test_empirical_values() -> None:
    law = Empirical([4.0, 1.0, 1.0, 2.0])
    assert law.cdf(np.array([-1.0, 0.0, 1.0, 1.5, 2.0, 4.0, 9.0])).tolist() == [0, 0, 0.5, 0.5, 0.75, 1, 1]
    assert law.tail_integral(np.array([-1.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 9.0])).tolist() == [
        *(0, 0.5, 1, 1.25, 1.5, 1.75, 2, 2)
    ]
    assert law.quantile(np.array([0.0, 0.1, 0.5, 0.51, 0.75, 1.0])).tolist() == [0, 1, 1, 2, 2, 4]
    assert law.mean == 2.0
    assert law.lipschitz == math.inf


def test_empirical_weights_are_repetitions() -> None:
    weighted = Empirical([3.0, 1.0, 0.0, 7.0], [1, 2, 1, 0])
    repeated = Empirical([0.0, 1.0, 1.0, 3.0])
    t = np.linspace(-1, 8, 91)
    assert np.allclose(weighted.cdf(t), repeated.cdf(t), atol=1e-15)
    assert np.allclose(weighted.tail_integral(t), repeated.tail_integral(t), atol=1e-15)
    assert weighted.quantile(1.0) == 3.0


def test_special_cases_coincide_with_the_exponential() -> None:
    t = np.geomspace(0.01, 2000, 50)
    for law in (Parametric("gamma", 135.0, 1.0), Parametric("weibull", 135.0, 1.0)):
        assert np.allclose(law.cdf(t), Exponential(135.0).cdf(t), rtol=1e-12)
        assert np.allclose(law.tail_integral(t), Exponential(135.0).tail_integral(t), rtol=1e-12)
        assert law.lipschitz == pytest.approx(1 / 135, rel=1e-12)


def test_moments_and_medians_by_hand() -> None:
    assert Parametric("lognormal", 135.0, 1.5).quantile(0.5) == pytest.approx(135 * math.exp(-(1.5**2) / 2))
    assert Parametric("gamma", 6.0, 2.0).cdf(6.0) == pytest.approx(1 - 3 * math.exp(-2))  # Erlang, two stages of 3 s
    scale = 135 / math.gamma(1 + 1 / 0.7)
    assert Parametric("weibull", 135.0, 0.7).cdf(50.0) == pytest.approx(1 - math.exp(-((50 / scale) ** 0.7)))


@pytest.mark.parametrize("law", SMOOTH, ids=name)
def test_tail_integral_is_the_integral_of_the_tail(law: Interarrival) -> None:
    for t in (0.5, 40.0, 135.0, 700.0):
        parts = np.concatenate(([0.0], t * np.geomspace(1e-6, 1, 13)))
        numeric = sum(quad(lambda u: 1 - law.cdf(u), a, b)[0] for a, b in pairwise(parts))
        assert law.tail_integral(t) == pytest.approx(numeric, rel=1e-7)


@pytest.mark.parametrize("law", SMOOTH, ids=name)
def test_ends_shapes_and_inverse(law: Interarrival) -> None:
    assert law.cdf(-1.0) == law.cdf(0.0) == law.tail_integral(-1.0) == law.tail_integral(0.0) == 0.0
    assert law.cdf(math.inf) == 1.0
    assert law.tail_integral(math.inf) == pytest.approx(law.mean, rel=1e-12)
    assert law.quantile(0.0) == 0.0
    assert law.quantile(1.0) == math.inf
    assert isinstance(law.cdf(3.0), float)
    assert law.cdf(np.ones((2, 3))).shape == law.tail_integral(np.ones((2, 3))).shape == (2, 3)
    p = np.array([1e-6, 0.01, 0.3, 0.9, 0.999])
    assert np.allclose(law.cdf(law.quantile(p)), p, rtol=1e-9)


@pytest.mark.parametrize("law", SMOOTH, ids=name)
def test_lipschitz_bounds_every_slope(law: Interarrival) -> None:
    t = np.linspace(0, 500, 20001)
    steepest = float(np.max(np.diff(law.cdf(t)) / np.diff(t)))
    assert steepest <= law.lipschitz * (1 + 1e-9)
    if math.isfinite(law.lipschitz):
        assert steepest == pytest.approx(law.lipschitz, rel=1e-2)


@pytest.mark.parametrize("law", [*SMOOTH, Empirical([1.0, 5.0, 300.0], [1, 1, 2])], ids=name)
def test_samples_follow_the_law(law: Interarrival) -> None:
    draws = np.sort(law.sample(np.random.default_rng(3), 20_000))
    distance = np.max(np.abs(law.cdf(draws) - np.searchsorted(draws, draws, side="right") / draws.size))
    assert distance < 1.95 / math.sqrt(draws.size)  # Kolmogorov-Smirnov at 0.1 %


@given(times, st.floats(0, 2e4))
def test_empirical_is_the_mean_of_min(values: list[float], t: float) -> None:
    law = Empirical(values)
    assert law.tail_integral(t) == pytest.approx(np.minimum(values, t).mean(), rel=1e-9, abs=1e-9)
    assert law.cdf(t) == pytest.approx(np.mean(np.asarray(values) <= t), abs=1e-12)


@given(times, st.floats(0, 1))
def test_empirical_quantile_is_the_least_time(values: list[float], p: float) -> None:
    law = Empirical(values)
    t = law.quantile(p)
    assert law.cdf(t) >= p
    if t > 0:
        assert law.cdf(math.nextafter(t, -1)) < p


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exponential(0.0), "mean must be finite and above 0, got 0.0"),
        (lambda: Parametric("lognormal", 1.0, -1.0), "shape must be finite and above 0, got -1.0"),
        (lambda: Parametric("gamma", 1.0, math.nan), "shape must be finite and above 0, got nan"),
        (lambda: Empirical([]), "at least one time"),
        (lambda: Empirical([1.0, -2.0]), "got -2.0"),
        (lambda: Empirical([1.0, math.nan]), "got nan"),
        (lambda: Empirical([1.0], [0.0]), "not all 0"),
        (lambda: Empirical([1.0, 2.0], [1.0]), "as many as interarrival times"),
        (lambda: Exponential(1.0).quantile(1.5), "probability between 0 and 1, got 1.5"),
    ],
)
def test_bad_input_is_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]

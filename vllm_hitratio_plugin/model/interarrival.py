"""The interarrival time W: seconds between a prompt and the next prompt of the same conversation, with CDF F.

The mean field needs only three functions of F: the CDF, its tail integral ∫_0^t (1 - F(u)) du = E[min(W, t)], and, for
the inverse problem, the quantile. The serving process imports this module, so scipy is imported on first use only.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.model.workload import checked

T = TypeVar("T", float, Array)
"""A float, or an array of any shape: the answer has the shape of the question."""

Family = Literal["lognormal", "gamma", "weibull"]


class Interarrival(Protocol):
    """The distribution F of the interarrival time; times in seconds."""

    @property
    def mean(self) -> float:
        """μ_F = E[W], seconds."""

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant L_F of the CDF, 1/s (B.4); ``math.inf`` where there is none."""

    def cdf(self, t: T) -> T:
        """F(t) = P(W ≤ t); 0 for t < 0."""

    def tail_integral(self, t: T) -> T:
        """∫_0^t (1 - F(u)) du = E[min(W, t)], seconds; 0 for t < 0, the mean at infinity."""

    def quantile(self, p: T) -> T:
        """F^{-1}(p), the least t with F(t) ≥ p, seconds; may be infinite at p = 1. ValueError outside [0, 1]."""

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """``size`` independent draws of W, seconds, shape (size,)."""


def _each(function: Callable[[Array], Array], value: T) -> T:
    """Apply an array function to a float or an array, and give back the same kind."""
    array = np.asarray(value, dtype=np.float64)
    # The closed forms pass through 0 · inf and log 0 at the ends of the support, where their limits are right.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        answer = function(array)
    return cast(T, answer if array.ndim else float(answer))


class _Distribution(ABC):
    """What all distributions share: floats and arrays, t < 0, p outside [0, 1], inverse-transform draws."""

    @abstractmethod
    def _cdf(self, t: Array) -> Array: ...

    @abstractmethod
    def _tail_integral(self, t: Array) -> Array: ...

    @abstractmethod
    def _quantile(self, p: Array) -> Array: ...

    def cdf(self, t: T) -> T:
        """F(t) = P(W ≤ t); 0 for t < 0."""
        return _each(lambda x: np.where(x < 0, 0.0, self._cdf(np.maximum(x, 0.0))), t)

    def tail_integral(self, t: T) -> T:
        """∫_0^t (1 - F(u)) du = E[min(W, t)], seconds; 0 for t < 0, the mean at infinity."""
        return _each(lambda x: self._tail_integral(np.maximum(x, 0.0)), t)

    def quantile(self, p: T) -> T:
        """F^{-1}(p), the least t with F(t) ≥ p, seconds; may be infinite at p = 1.

        Raises:
            ValueError: p is not a probability.
        """
        array = np.asarray(p, dtype=np.float64)
        if not np.all((array >= 0) & (array <= 1)):
            raise ValueError(f"p must be a probability between 0 and 1, got {p!r}")
        return _each(self._quantile, p)

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """``size`` independent draws of W, seconds, shape (size,)."""
        return self.quantile(rng.random(size))


@dataclass(frozen=True)
class Exponential(_Distribution):
    """F(t) = 1 - exp(-t / mean): the law the paper assumes (appendix E).

    Example:
        >>> round(Exponential(135.0).cdf(135.0), 4)
        0.6321
    """

    mean: float
    """μ_F, seconds, above 0."""

    def __post_init__(self) -> None:
        checked("mean", self.mean, above=0)

    @property
    def lipschitz(self) -> float:
        """The density at 0, 1 / mean."""
        return 1.0 / self.mean

    def _cdf(self, t: Array) -> Array:
        return np.asarray(-np.expm1(-t / self.mean))

    def _tail_integral(self, t: Array) -> Array:
        return self.mean * self._cdf(t)

    def _quantile(self, p: Array) -> Array:
        return np.asarray(-self.mean * np.log1p(-p))


@dataclass(frozen=True)
class Parametric(_Distribution):
    """A log-normal, gamma or Weibull law, by its mean: scipy's distributions and their size-biased counterparts.

    E[W; W ≤ t] = E[W] · P(W' ≤ t), where the density of the size-biased W' is proportional to that of W times t. Each
    of the three families has a W' that scipy knows, so the tail integral needs no quadrature.

    Example:
        >>> law = Parametric("weibull", 135.0, 1.0)
        >>> round(law.tail_integral(135.0), 4) == round(Exponential(135.0).tail_integral(135.0), 4)
        True
    """

    family: Family
    mean: float
    """E[W], seconds, above 0."""
    shape: float
    """Shape of the gamma or Weibull law (1: exponential), or the standard deviation of log W; above 0."""

    def __post_init__(self) -> None:
        checked("mean", self.mean, above=0)
        checked("shape", self.shape, above=0)

    @property
    def lipschitz(self) -> float:
        """The density at the mode; infinite where it is unbounded at 0: gamma and Weibull with a shape below 1."""
        if self.family != "lognormal" and self.shape < 1:
            return math.inf
        law, _, mode = self._laws
        return float(law.pdf(mode))

    @cached_property
    def _laws(self) -> tuple[Any, Any, float]:
        """W and W' as frozen distributions of scipy, and the mode of W, s."""
        from scipy import stats

        mean, k = self.mean, self.shape
        if self.family == "lognormal":
            median = mean * math.exp(-(k**2) / 2)
            biased = mean * math.exp(k**2 / 2)
            return stats.lognorm(k, scale=median), stats.lognorm(k, scale=biased), median * math.exp(-(k**2))
        if self.family == "gamma":
            scale = mean / k
            return stats.gamma(k, scale=scale), stats.gamma(k + 1, scale=scale), max(k - 1, 0.0) * scale
        scale = mean / math.gamma(1 + 1 / k)
        mode = scale * max(1 - 1 / k, 0.0) ** (1 / k)
        return stats.weibull_min(k, scale=scale), stats.gengamma(1 + 1 / k, k, scale=scale), mode

    def _cdf(self, t: Array) -> Array:
        return np.asarray(self._laws[0].cdf(t))

    def _tail_integral(self, t: Array) -> Array:
        law, biased, _ = self._laws
        tail = law.sf(t)
        return np.asarray(self.mean * biased.cdf(t) + np.where(tail > 0, t * tail, 0.0))

    def _quantile(self, p: Array) -> Array:
        return np.asarray(self._laws[0].ppf(p))


class Empirical(_Distribution):
    """The law of measured interarrival times: a step CDF, whose tail integral is exactly piecewise linear.

    Takes O(n log n) to make, O(n) memory, O(log n) to evaluate.

    Args:
        times: seconds, shape (n,), n ≥ 1, finite, not negative; copied and sorted.
        weights: shape (n,), not negative, not all 0; for example the blocks that each time concerns
            (docs/model.md#flow-form). None: equal.

    Raises:
        ValueError: no times, a time or weight that is negative or not finite, or shapes that differ.

    Example:
        >>> law = Empirical([1.0, 2.0, 4.0, 1.0])
        >>> law.cdf(1.5), law.quantile(0.6), law.mean
        (0.5, 2.0, 2.0)
    """

    def __init__(self, times: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        values = np.array(times, dtype=np.float64)
        if values.ndim != 1 or not values.size:
            raise ValueError(f"interarrival times must be one sequence of at least one time, got shape {values.shape}")
        wrong = values[~((values >= 0) & (values < math.inf))]
        if wrong.size:
            raise ValueError(f"interarrival times must be finite seconds of at least 0, got {wrong[0]}")
        n = values.size
        if weights is None:
            values.sort()
            cumulative = np.arange(1, n + 1) / n
        else:
            given = np.asarray(weights, dtype=np.float64)
            if given.shape != values.shape:
                raise ValueError(f"weights must be as many as interarrival times ({n}), got shape {given.shape}")
            if not (given.min() >= 0 and given.max() < math.inf and given.sum() > 0):
                raise ValueError(f"weights must be finite, at least 0 and not all 0, got {weights!r}")
            order = np.argsort(values, kind="stable")
            values = values[order]
            cumulative = np.cumsum(given[order])
            cumulative /= cumulative[-1]
        self.times: Array = values
        """Sorted interarrival times, seconds, shape (n,)."""
        self.cumulative: Array = cumulative
        """F at the times, shape (n,); the last is exactly 1."""
        self.knots: Array = np.concatenate(([0.0], values))
        """Times between which the tail integral is linear, seconds, shape (n + 1,); constant after the last."""
        tail = np.concatenate(([1.0], 1.0 - cumulative[:-1]))
        self.integrals: Array = np.concatenate(([0.0], np.cumsum(np.diff(self.knots) * tail)))
        """The tail integral at the knots, seconds, shape (n + 1,)."""

    @property
    def mean(self) -> float:
        """The weighted mean, seconds."""
        return float(self.integrals[-1])

    @property
    def lipschitz(self) -> float:
        """Infinite: a step has no Lipschitz constant."""
        return math.inf

    def _cdf(self, t: Array) -> Array:
        below = np.searchsorted(self.times, t, side="right")
        return np.where(below > 0, self.cumulative[below - 1], 0.0)

    def _tail_integral(self, t: Array) -> Array:
        return np.asarray(np.interp(t, self.knots, self.integrals))

    def _quantile(self, p: Array) -> Array:
        return np.where(p > 0, self.times[np.searchsorted(self.cumulative, p, side="left")], 0.0)

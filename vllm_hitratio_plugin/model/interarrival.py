"""The interarrival time W: seconds between a prompt and the next prompt of the same conversation, with CDF F.

The mean field needs of F only the CDF, its tail integral ∫_0^t (1 - F(u)) du = E[min(W, t)], and for the inverse
problem the quantile. scipy is imported inside the methods that need it: the serving process imports this module too.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from vllm_hitratio_plugin.model.workload import checked

Array = npt.NDArray[np.float64]
T = TypeVar("T", float, Array)
"""A float, or an array of any shape: the answer has the shape of the question."""


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


def _up_to(mean_below: Array, t: Array, tail: Array) -> Array:
    """E[min(W, t)] from E[W; W ≤ t] and P(W > t); the limit at t = inf is the mean."""
    return np.asarray(mean_below + np.where(tail > 0, t * tail, 0.0))


class _Distribution(ABC):
    """The edges that all distributions share: floats and arrays, t < 0, p outside [0, 1], inverse-transform draws."""

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
    """F(t) = 1 - exp(-t / mean): the paper's prior (appendix E) and the SCM's law."""

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
class LogNormal(_Distribution):
    """log W is normal with mean log(median) and standard deviation ``sigma``."""

    median: float
    """Seconds, above 0."""
    sigma: float
    """Standard deviation of log W, above 0."""

    def __post_init__(self) -> None:
        checked("median", self.median, above=0)
        checked("sigma", self.sigma, above=0)

    @classmethod
    def from_mean(cls, mean: float, sigma: float) -> "LogNormal":
        """The one with this mean, seconds."""
        return cls(checked("mean", mean, above=0) * math.exp(-(sigma**2) / 2), sigma)

    @property
    def mean(self) -> float:
        """E[W], seconds."""
        return self.median * math.exp(self.sigma**2 / 2)

    @property
    def lipschitz(self) -> float:
        """The density at the mode, median · exp(-sigma²)."""
        return math.exp(self.sigma**2 / 2) / (self.median * self.sigma * math.sqrt(2 * math.pi))

    def _cdf(self, t: Array) -> Array:
        from scipy.special import ndtr

        return np.asarray(ndtr(np.log(t / self.median) / self.sigma))

    def _tail_integral(self, t: Array) -> Array:
        from scipy.special import ndtr

        z = np.log(t / self.median) / self.sigma
        return _up_to(self.mean * ndtr(z - self.sigma), t, ndtr(-z))

    def _quantile(self, p: Array) -> Array:
        from scipy.special import ndtri

        return np.asarray(self.median * np.exp(self.sigma * ndtri(p)))


@dataclass(frozen=True)
class Gamma(_Distribution):
    """The gamma law: density proportional to t^(shape-1) exp(-t / scale)."""

    shape: float
    """Above 0; 1 is the exponential."""
    scale: float
    """Seconds, above 0."""

    def __post_init__(self) -> None:
        checked("shape", self.shape, above=0)
        checked("scale", self.scale, above=0)

    @classmethod
    def from_mean(cls, mean: float, shape: float) -> "Gamma":
        """The one with this mean, seconds."""
        return cls(shape, checked("mean", mean, above=0) / checked("shape", shape, above=0))

    @property
    def mean(self) -> float:
        """E[W], seconds."""
        return self.shape * self.scale

    @property
    def lipschitz(self) -> float:
        """The density at the mode, (shape - 1) · scale; infinite for shape < 1, whose density is unbounded at 0."""
        if self.shape < 1:
            return math.inf
        n = self.shape - 1
        return math.exp((n * math.log(n) if n else 0.0) - n - math.lgamma(self.shape)) / self.scale

    def _cdf(self, t: Array) -> Array:
        from scipy.special import gammainc

        return np.asarray(gammainc(self.shape, t / self.scale))

    def _tail_integral(self, t: Array) -> Array:
        from scipy.special import gammainc, gammaincc

        x = t / self.scale
        return _up_to(self.mean * gammainc(self.shape + 1, x), t, gammaincc(self.shape, x))

    def _quantile(self, p: Array) -> Array:
        from scipy.special import gammaincinv

        return np.asarray(self.scale * gammaincinv(self.shape, p))


@dataclass(frozen=True)
class Weibull(_Distribution):
    """F(t) = 1 - exp(-(t / scale)^shape)."""

    shape: float
    """Above 0; 1 is the exponential."""
    scale: float
    """Seconds, above 0."""

    def __post_init__(self) -> None:
        checked("shape", self.shape, above=0)
        checked("scale", self.scale, above=0)

    @classmethod
    def from_mean(cls, mean: float, shape: float) -> "Weibull":
        """The one with this mean, seconds."""
        return cls(shape, checked("mean", mean, above=0) / math.gamma(1 + 1 / checked("shape", shape, above=0)))

    @property
    def mean(self) -> float:
        """E[W], seconds."""
        return self.scale * math.gamma(1 + 1 / self.shape)

    @property
    def lipschitz(self) -> float:
        """The density at the mode; infinite for shape < 1, whose density is unbounded at 0."""
        if self.shape < 1:
            return math.inf
        u = 1 - 1 / self.shape  # (mode / scale)^shape
        return self.shape / self.scale * math.pow(u, u) * math.exp(-u)

    def _cdf(self, t: Array) -> Array:
        return np.asarray(-np.expm1(-((t / self.scale) ** self.shape)))

    def _tail_integral(self, t: Array) -> Array:
        from scipy.special import gammainc

        x = (t / self.scale) ** self.shape
        return _up_to(self.mean * gammainc(1 + 1 / self.shape, x), t, np.exp(-x))

    def _quantile(self, p: Array) -> Array:
        return np.asarray(self.scale * (-np.log1p(-p)) ** (1 / self.shape))


@dataclass(frozen=True)
class Mixture(_Distribution):
    """W is drawn from component i with probability weights[i]; say quick tool calls and slow readers."""

    components: Sequence[Interarrival]
    weights: Sequence[float]
    """As many as components, not negative; normalised to sum to 1."""

    def __post_init__(self) -> None:
        if len(self.components) != len(self.weights) or not self.components:
            raise ValueError(
                f"a mixture needs one weight for each component and at least one of them, got {len(self.components)} "
                f"components and {len(self.weights)} weights"
            )
        weights = [checked(f"weights[{i}]", weight, at_least=0) for i, weight in enumerate(self.weights)]
        total = checked("sum of weights", sum(weights), above=0)
        # A component of weight 0 must not stretch the bracket of the quantile.
        kept = [(c, w / total) for c, w in zip(self.components, weights, strict=True) if w > 0]
        object.__setattr__(self, "components", tuple(c for c, _ in kept))
        object.__setattr__(self, "weights", tuple(w for _, w in kept))

    @property
    def mean(self) -> float:
        """E[W], seconds."""
        return math.fsum(w * c.mean for c, w in zip(self.components, self.weights, strict=True))

    @property
    def lipschitz(self) -> float:
        """Σ weight · L_F of the component: a Lipschitz constant, if not always the least."""
        return math.fsum(w * c.lipschitz for c, w in zip(self.components, self.weights, strict=True))

    def _cdf(self, t: Array) -> Array:
        whole = sum(w * c.cdf(t) for c, w in zip(self.components, self.weights, strict=True))
        return np.asarray(np.minimum(1.0, whole))  # the weights sum to 1 only up to rounding

    def _tail_integral(self, t: Array) -> Array:
        return np.asarray(sum(w * c.tail_integral(t) for c, w in zip(self.components, self.weights, strict=True)))

    def _quantile(self, p: Array) -> Array:
        ends = np.stack([np.asarray(c.quantile(p)) for c in self.components])
        low, high = np.min(ends, axis=0), np.max(ends, axis=0)
        high = np.where(self._cdf(low) >= p, low, high)  # a jump at the lower end is the answer itself
        # Bisection rather than a root finder: F may jump, and the upper end always keeps F(high) ≥ p.
        for _ in range(200):
            middle = low + (high - low) / 2
            if not np.any((middle > low) & (middle < high) & np.isfinite(high)):
                break
            enough = self._cdf(middle) >= p
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """``size`` independent draws of W, seconds, shape (size,)."""
        which = rng.choice(len(self.components), size=size, p=np.asarray(self.weights))
        draws = np.empty(size)
        for i, component in enumerate(self.components):
            chosen = which == i
            draws[chosen] = component.sample(rng, int(chosen.sum()))
        return draws


class Empirical(_Distribution):
    """The law of measured gaps: a step CDF, whose tail integral is exactly piecewise linear.

    Takes O(n log n) to make, O(n) memory, O(log n) to evaluate.

    Args:
        gaps: seconds, shape (n,), n ≥ 1, finite, not negative; copied and sorted.
        weights: shape (n,), not negative, not all 0; say the blocks each gap concerns (MODEL section 3). None: equal.

    Raises:
        ValueError: no gaps, a gap or weight that is negative or not finite, or shapes that differ.
    """

    def __init__(self, gaps: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        values = np.array(gaps, dtype=np.float64)
        if values.ndim != 1 or not values.size:
            raise ValueError(f"gaps must be one sequence of at least one gap in seconds, got shape {values.shape}")
        if not (values.min() >= 0 and values.max() < math.inf):
            raise ValueError(
                f"gaps must be finite seconds of at least 0, got {values[~((values >= 0) & (values < math.inf))][0]}"
            )
        n = values.size
        if weights is None:
            values.sort()
            cumulative = np.arange(1, n + 1) / n
        else:
            given = np.asarray(weights, dtype=np.float64)
            if given.shape != values.shape:
                raise ValueError(f"weights must be as many as gaps ({n}), got shape {given.shape}")
            if not (given.min() >= 0 and given.max() < math.inf and given.sum() > 0):
                raise ValueError(f"weights must be finite, at least 0 and not all 0, got {weights!r}")
            order = np.argsort(values, kind="stable")
            values = values[order]
            cumulative = np.cumsum(given[order])
            cumulative /= cumulative[-1]
        self.gaps: Array = values
        """Sorted gaps, seconds, shape (n,)."""
        self.cumulative: Array = cumulative
        """F at the gaps, shape (n,); the last is exactly 1."""
        self.knots: Array = np.concatenate(([0.0], values))
        """Times between which the tail integral is linear, seconds, shape (n + 1,); constant after the last."""
        tail = np.concatenate(([1.0], 1.0 - cumulative[:-1]))
        self.integrals: Array = np.concatenate(([0.0], np.cumsum(np.diff(self.knots) * tail)))
        """The tail integral at the knots, seconds, shape (n + 1,)."""

    @classmethod
    def from_weighted(cls, pairs: Iterable[tuple[float, float]]) -> "Empirical":
        """From pairs (gap in seconds, weight), in any order."""
        table = np.array(list(pairs), dtype=np.float64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    @property
    def mean(self) -> float:
        """The weighted mean gap, seconds."""
        return float(self.integrals[-1])

    @property
    def lipschitz(self) -> float:
        """Infinite: a step has no Lipschitz constant."""
        return math.inf

    def _cdf(self, t: Array) -> Array:
        below = np.searchsorted(self.gaps, t, side="right")
        return np.where(below > 0, self.cumulative[below - 1], 0.0)

    def _tail_integral(self, t: Array) -> Array:
        return np.asarray(np.interp(t, self.knots, self.integrals))

    def _quantile(self, p: Array) -> Array:
        return np.where(p > 0, self.gaps[np.searchsorted(self.cumulative, p, side="left")], 0.0)


def prior(mean_gap: float) -> Exponential:
    """F before anything is measured: exponential with the mean gap one expects, seconds (appendix E)."""
    return Exponential(checked("mean_gap", mean_gap, above=0))


def posterior(gaps: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Empirical:
    """F after measuring: the empirical law of the gaps, seconds, shape (n,) (38)-(39)."""
    return Empirical(gaps, weights)


def exponential_posterior(gaps: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Exponential:
    """The paper's own posterior: exponential with the mean of the measured gaps, seconds (appendix E)."""
    return Exponential(Empirical(gaps, weights).mean)

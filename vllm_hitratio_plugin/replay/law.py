"""Laws of durations by name and parameters, as a command line gives them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.interarrival import Empirical, Exponential, Gamma, Interarrival, LogNormal, Weibull


@dataclass(frozen=True)
class Law:
    """A distribution of durations in seconds, and what it is called."""

    name: str
    distribution: Interarrival

    @property
    def mean(self) -> float:
        """Seconds."""
        return self.distribution.mean

    def draw(self, rng: np.random.Generator, count: int) -> list[float]:
        """``count`` independent values, seconds."""
        values: list[float] = self.distribution.sample(rng, count).tolist()
        return values

    def __str__(self) -> str:
        return self.name


def exponential(mean: float) -> Law:
    """Exponential with the given mean, the paper's think time."""
    return Law(f"exponential:{mean:g}", Exponential(float(mean)))


def fixed(value: float) -> Law:
    """Always the same."""
    return Law(f"fixed:{value:g}", Empirical([value]))


_FAMILIES: dict[str, tuple[Callable[..., Interarrival], str]] = {
    "exponential": (Exponential, "MEAN"),
    "fixed": (lambda value: Empirical([value]), "SECONDS"),
    "lognormal": (LogNormal.from_mean, "MEAN:SIGMA"),
    "gamma": (Gamma.from_mean, "MEAN:SHAPE"),
    "weibull": (Weibull.from_mean, "MEAN:SHAPE"),
}


def parse_law(text: str) -> Law:
    """Read ``135`` or ``exponential:135``, ``fixed:10``, ``lognormal:135:1.5``, ``gamma:135:0.5``, ``weibull:135:0.7``.

    The first number is in seconds. Raises ``ValueError`` with one sentence.
    """
    name, *rest = text.split(":")
    if not rest:
        name, rest = "exponential", [name]
    make, shape = _FAMILIES.get(name, (None, ""))
    if make is None:
        raise ValueError(f"{text!r}: a law of durations must be one of {', '.join(_FAMILIES)}")
    try:
        values = [float(value) for value in rest]
        if len(values) != shape.count(":") + 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r}: {name} takes {name}:{shape}, finite and positive") from None
    try:
        distribution = make(*values)
        computable = math.isclose(distribution.mean, values[0], rel_tol=1e-6) and all(
            math.isfinite(distribution.tail_integral(part * values[0])) for part in (0.1, 0.5, 1.0, 2.0)
        )
    except (ValueError, ArithmeticError):
        computable = False
    if not computable:
        if all(0 < value < math.inf for value in values):
            raise ValueError(f"{text!r} is too extreme to compute with: take parameters nearer to 1")
        raise ValueError(f"{text!r}: {name} takes {name}:{shape}, finite and positive")
    return Law(":".join([name, *(f"{value:g}" for value in values)]), distribution)

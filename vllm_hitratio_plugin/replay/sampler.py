"""Positive random times, by name and parameters."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sampler:
    """A distribution of durations in seconds."""

    name: str
    mean: float
    draw: Callable[[np.random.Generator, int], Floats]
    """``draw(rng, n)``: n independent values, in seconds."""

    def __str__(self) -> str:
        return self.name


def exponential(mean: float) -> Sampler:
    """Exponential with the given mean; a mean of 0 is no time at all."""
    return Sampler(f"exponential:{mean:g}", mean, lambda rng, n: rng.exponential(mean, n))


def fixed(value: float) -> Sampler:
    """Always the same."""
    return Sampler(f"fixed:{value:g}", value, lambda rng, n: np.full(n, float(value)))


def lognormal(mean: float, variation: float) -> Sampler:
    """Log-normal with the given mean and coefficient of variation."""
    square = float(np.log1p(variation**2))
    location = float(np.log(mean)) - square / 2
    return Sampler(
        f"lognormal:{mean:g}:{variation:g}", mean, lambda rng, n: rng.lognormal(location, np.sqrt(square), n)
    )


def gamma(mean: float, variation: float) -> Sampler:
    """Gamma with the given mean and coefficient of variation."""
    shape = variation**-2
    return Sampler(f"gamma:{mean:g}:{variation:g}", mean, lambda rng, n: rng.gamma(shape, mean / shape, n))


_FAMILIES: dict[str, tuple[Callable[..., Sampler], int]] = {
    "exponential": (exponential, 1),
    "fixed": (fixed, 1),
    "lognormal": (lognormal, 2),
    "gamma": (gamma, 2),
}


def parse_sampler(text: str) -> Sampler:
    """Read ``135`` or ``exponential:135``, ``fixed:10``, ``lognormal:135:1.5``, ``gamma:135:0.5``.

    The mean is in seconds, the second number is the coefficient of variation. Raises ``ValueError`` with one sentence.
    """
    name, *rest = text.split(":")
    if not rest:
        name, rest = "exponential", [name]
    make, arity = _FAMILIES.get(name, (None, 0))
    if make is None:
        raise ValueError(f"{text!r}: the distribution must be one of {', '.join(_FAMILIES)}")
    try:
        values = [float(value) for value in rest]
    except ValueError:
        values = []
    if len(values) != arity or not all(0 <= value < float("inf") for value in values) or (arity == 2 and 0 in values):
        wanted = "MEAN" if arity == 1 else "MEAN:VARIATION"
        raise ValueError(f"{text!r}: {name} takes {name}:{wanted}, finite and not negative")
    return make(*values)

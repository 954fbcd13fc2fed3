"""Laws of durations by name and parameters, as a command line gives them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vllm_hitratio_plugin.model.interarrival import Empirical, Exponential, Interarrival, Parametric
from vllm_hitratio_plugin.numbers import number, positives

Made = TypeVar("Made")
Form = tuple[Callable[..., Made], str]
"""What makes the thing of its parameters, and their names: ``MEAN:SIGMA``."""


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


def exponential(mean: float) -> Law:
    """Exponential with the given mean, the paper's think time."""
    return Law(f"exponential:{mean:g}", Exponential(float(mean)))


_FORMS: dict[str, Form[Interarrival]] = {
    "exponential": (Exponential, "MEAN"),
    "fixed": (lambda value: Empirical([value]), "SECONDS"),
    "lognormal": (lambda mean, sigma: Parametric("lognormal", mean, sigma), "MEAN:SIGMA"),
    "gamma": (lambda mean, shape: Parametric("gamma", mean, shape), "MEAN:SHAPE"),
    "weibull": (lambda mean, shape: Parametric("weibull", mean, shape), "MEAN:SHAPE"),
}


def parse_law(text: str) -> Law:
    """Read ``135`` or ``exponential:135``, ``fixed:10``, ``lognormal:135:1.5``, ``gamma:135:0.5``, ``weibull:135:0.7``.

    The first number is in seconds.

    Raises:
        ValueError: with one sentence.

    Example:
        >>> parse_law("135").name, parse_law("gamma:60:2").mean
        ('exponential:135', 60.0)
    """
    make, name, values = parse_form(text, _FORMS, "exponential", "a law of durations")
    try:
        distribution = make(*values)
        computable = all(math.isfinite(distribution.tail_integral(part * values[0])) for part in (0.1, 0.5, 1.0, 2.0))
    except (ValueError, ArithmeticError):
        computable = False
    if not computable:
        raise ValueError(f"{text!r} is too extreme to compute with: take parameters nearer to 1")
    return Law(":".join([name, *(f"{value:g}" for value in values)]), distribution)


def parse_duration(text: str | None) -> Law | None:
    """Like :func:`parse_law`; None for no text and for 0, no time at all."""
    return None if text is None or number(text, least=0, most=0) is not None else parse_law(text)


def parse_form(
    text: str, forms: dict[str, Form[Made]], default: str, what: str
) -> tuple[Callable[..., Made], str, list[float]]:
    """Read ``NAME:NUMBER:...``, or the numbers of the ``default`` form alone: the maker, the name and the numbers.

    Raises:
        ValueError: the name is none of ``forms``, or the numbers are not what it takes, finite and positive.
    """
    name, *rest = text.split(":")
    if not rest:
        name, rest = default, [name]
    if name not in forms:
        raise ValueError(f"{text!r}: {what} must be one of {', '.join(forms)}")
    make, parameters = forms[name]
    values = positives(rest, parameters.count(":") + 1)
    if values is None:
        raise ValueError(f"{text!r}: {name} takes {name}:{parameters}, finite and positive")
    return make, name, values

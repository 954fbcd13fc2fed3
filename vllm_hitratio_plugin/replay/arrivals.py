"""When conversations start: Poisson, at a rate that may move."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.replay.law import Form, parse_form


@dataclass(frozen=True)
class Arrivals:
    """A Poisson process of conversation starts with rate λ0(t)."""

    name: str
    peak: float
    """Largest rate, conversations per second."""

    rate: Callable[[Array], Array] | None = None
    """λ0 at times in seconds; None: always ``peak``."""

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """The first ``count`` starts, in seconds from 0 on, by thinning the process of the peak rate.

        ``ValueError`` where the rate has fallen to (nearly) nothing before there were as many.
        """
        times = np.cumsum(rng.exponential(1 / self.peak, count))
        if self.rate is None:
            return times
        kept: list[Array] = []
        found = 0
        for _ in range(1000):
            chosen = times[rng.random(len(times)) * self.peak < self.rate(times)]
            kept.append(chosen)
            found += len(chosen)
            if found >= count:
                return np.concatenate(kept)[:count]
            times = times[-1] + np.cumsum(rng.exponential(1 / self.peak, count))
        raise ValueError(f"{self.name} does not bring {count} conversations")


def poisson(rate: float) -> Arrivals:
    """The same rate always."""
    return Arrivals(f"poisson:{rate:g}", rate)


def ramp(first: float, last: float, after: float, seconds: float) -> Arrivals:
    """One rate for ``after`` seconds, then in a straight line of ``seconds`` to another, which stays."""

    def rate(times: Array) -> Array:
        return first + (last - first) * np.clip((times - after) / seconds, 0.0, 1.0)

    return Arrivals(f"ramp:{first:g}:{last:g}:{after:g}:{seconds:g}", max(first, last), rate)


def diurnal(mean: float, ratio: float, period: float) -> Arrivals:
    """A sine around ``mean`` whose highest rate is ``ratio`` times its lowest, once a ``period`` seconds."""
    swing = (ratio - 1) / (ratio + 1)

    def rate(times: Array) -> Array:
        return mean * (1 + swing * np.sin(2 * math.pi * times / period))

    return Arrivals(f"diurnal:{mean:g}:{ratio:g}:{period:g}", mean * (1 + swing), rate)


def burst(base: float, peak: float, every: float, seconds: float) -> Arrivals:
    """``peak`` during the last ``seconds`` of every ``every`` seconds, ``base`` otherwise."""

    def rate(times: Array) -> Array:
        return np.where(times % every >= every - seconds, peak, base)

    return Arrivals(f"burst:{base:g}:{peak:g}:{every:g}:{seconds:g}", max(base, peak), rate)


_FORMS: dict[str, Form[Arrivals]] = {
    "poisson": (poisson, "RATE"),
    "ramp": (ramp, "FIRST:LAST:AFTER:SECONDS"),
    "diurnal": (diurnal, "MEAN:RATIO:PERIOD"),
    "burst": (burst, "BASE:PEAK:EVERY:SECONDS"),
}


def parse_arrivals(text: str) -> Arrivals:
    """Read ``1.5`` or ``poisson:1.5``, ``ramp:1.4:0.2:600:1020``, ``diurnal:1.5:4:3600``, ``burst:1:4:1200:120``.

    Rates are in conversations per second, times in seconds.

    Raises:
        ValueError: with one sentence.

    Example:
        >>> parse_arrivals("ramp:1.4:0.2:600:1020").peak
        1.4
    """
    make, _, values = parse_form(text, _FORMS, "poisson", "arrivals")
    return make(*values)

"""Standard errors by the delete-one jackknife over the time slots of a window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.traffic import Array


@dataclass(frozen=True)
class Uncertain:
    """A figure and its standard error; None where it cannot be given."""

    value: float | None = None
    stderr: float | None = None


def ratio_jackknife(numerators: Array, denominators: Array) -> Uncertain:
    """Σ numerators / Σ denominators over the G slots of a window, both (G,), with its delete-one-slot standard error.

    Example:
        >>> ratio_jackknife(np.array([1.0, 3.0]), np.array([4.0, 4.0]))
        Uncertain(value=0.5, stderr=0.25)
    """
    numerator, denominator = float(numerators.sum()), float(denominators.sum())
    if denominator <= 0:
        return Uncertain()
    left = denominator - denominators
    usable = left > 0
    replicas = (numerator - numerators)[usable] / left[usable]
    return Uncertain(numerator / denominator, jackknife_stderr(replicas))


def jackknife_stderr(replicas: Array) -> float | None:
    """Standard error from the delete-one replicas, (G,); None for fewer than two."""
    count = len(replicas)
    if count < 2:
        return None
    return float(np.sqrt((count - 1) / count * np.sum((replicas - replicas.mean()) ** 2)))

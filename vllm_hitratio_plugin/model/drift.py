"""Drift: which property of the traffic changed between two windows, and how much of the hit ratio's change it explains.

The flow form (docs/model.md#flow-form) makes the estimate a function of five factors::

    arrival_rate       λ0, conversations per second
    conversation_size  A_R, prompt blocks per conversation; the lengths of reused runs go with it
    reuse_times        reuse times of the reused blocks, each weighted by its blocks, and runs in use
    reusable_share     reused and newly written blocks, as shares of the prompt blocks
    blocks_in_use      blocks in use, ahead of everything

Each window gives all five, so ĥ can be computed for any mixture of the two windows' factors. A factor's contribution to
the change is its Shapley value: the change it makes, averaged over all orders in which the factors can be exchanged.
The contributions add up to ĥ(now) - ĥ(before) exactly, and no order is preferred (docs/model.md#drift).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np

from vllm_hitratio_plugin.model.jackknife import Uncertain, ratio_jackknife
from vllm_hitratio_plugin.model.reuse_time import ReuseTimeModel
from vllm_hitratio_plugin.model.traffic import Array, RunTable, TrafficSums

FACTORS = ("arrival_rate", "conversation_size", "reuse_times", "reusable_share", "blocks_in_use")

#: A factor changed if it did so by more than this many standard errors of its change. Five factors are tested again and
#: again, so 1.96 would raise false alarms.
SIGNIFICANT = 3.0


@dataclass(frozen=True)
class FactorChange:
    """One factor in both windows."""

    before: Uncertain
    now: Uncertain
    contribution: float
    """Its contribution to the change of the hit ratio."""

    @property
    def significant(self) -> bool:
        """It changed beyond its standard errors."""
        if self.before.value is None or self.now.value is None:
            return False
        errors = np.hypot(self.before.stderr or 0.0, self.now.stderr or 0.0)
        change = abs(self.now.value - self.before.value)
        return bool(change > SIGNIFICANT * errors and change > 1e-9 * abs(self.before.value))


@dataclass(frozen=True)
class Drift:
    """The change of the estimated hit ratio, in flow form, and what it comes from."""

    before: float
    now: float
    factors: dict[str, FactorChange]
    """By ``FACTORS``."""

    @property
    def change(self) -> float:
        """ĥ now minus before; the sum of all contributions."""
        return self.now - self.before

    @property
    def contributions(self) -> dict[str, float]:
        """By ``FACTORS``."""
        return {name: factor.contribution for name, factor in self.factors.items()}

    @property
    def significant(self) -> list[str]:
        """The factors that changed beyond their standard errors, the one that explains most first."""
        names = [name for name, factor in self.factors.items() if factor.significant]
        return sorted(names, key=lambda name: -abs(self.factors[name].contribution))


def drift(before: Sequence[TrafficSums], now: Sequence[TrafficSums], capacity: float) -> Drift | None:
    """Compare two windows of one engine, both lists of consecutive time slots.

    ``reuse_times`` is measured by the share of the reused blocks whose reuse time is below T_C of the window before,
    the rest as they are; standard errors are jackknives over the slots.

    Returns None where a window has no conversation that starts, or nothing that is reused.
    """
    windows = [TrafficSums.total(list(slots)) for slots in (before, now)]
    if any(not (whole.seconds and whole.first_turns and whole.reusable_blocks) for whole in windows):
        return None
    factors = [_Factors.of(whole) for whole in windows]
    ratios = {chosen: _hit_ratio(factors, chosen, capacity) for chosen in _subsets(FACTORS)}
    horizon = ReuseTimeModel(windows[0]).characteristic_time(capacity)
    measured = [_measured(slots, horizon) for slots in (before, now)]
    return Drift(
        ratios[frozenset()],
        ratios[frozenset(FACTORS)],
        {name: FactorChange(measured[0][name], measured[1][name], _shapley(name, ratios)) for name in FACTORS},
    )


@dataclass(frozen=True)
class _Factors:
    """One window, taken apart; the product of all factors is the window again."""

    arrival_rate: float
    conversation_size: float
    reuse_times: tuple[Array, Array, Array]
    """Reuse times in s, blocks as a share of all, lengths in units of A_R; (n,) each."""
    reusable_share: tuple[float, float]
    blocks_in_use: float

    @classmethod
    def of(cls, whole: TrafficSums) -> _Factors:
        size = whole.prompt_blocks / whole.first_turns
        runs = whole.runs
        return cls(
            whole.first_turns / whole.seconds,
            size,
            (runs.reuse_times, runs.blocks / runs.total_blocks, runs.lengths / size),
            (whole.reusable_blocks / whole.prompt_blocks, whole.written_blocks / whole.prompt_blocks),
            whole.mean_in_use_blocks,
        )


def _hit_ratio(windows: Sequence[_Factors], exchanged: frozenset[str], capacity: float) -> float:
    """ĥ(N) with the ``exchanged`` factors of the second window and the others of the first."""

    def source(name: str) -> _Factors:
        return windows[name in exchanged]

    size = source("conversation_size").conversation_size
    prompts = source("arrival_rate").arrival_rate * size
    times, shares, lengths = source("reuse_times").reuse_times
    reused, written = source("reusable_share").reusable_share
    blocks = shares * reused * prompts
    sums = TrafficSums(
        seconds=1.0,
        requests=1.0,
        prompt_blocks=prompts,
        written_blocks=written * prompts,
        in_use_blocks=source("blocks_in_use").blocks_in_use,
        runs=RunTable(
            bins=np.arange(len(blocks)).astype(float),
            runs=blocks / (lengths * size),
            blocks=blocks,
            reuse_seconds=times * blocks,
            own_blocks=np.zeros(len(blocks)),
        ),
    )
    ratio = ReuseTimeModel(sums).curve.hit_ratio(capacity)
    assert ratio is not None
    return ratio


def _subsets(names: Sequence[str]) -> list[frozenset[str]]:
    return [frozenset(chosen) for size in range(len(names) + 1) for chosen in combinations(names, size)]


def _shapley(name: str, ratios: dict[frozenset[str], float]) -> float:
    others = [other for other in FACTORS if other != name]
    return sum(
        factorial(len(first))
        * factorial(len(others) - len(first))
        / factorial(len(FACTORS))
        * (ratios[first | {name}] - ratios[first])
        for first in _subsets(others)
    )


def _measured(slots: Sequence[TrafficSums], horizon: float) -> dict[str, Uncertain]:
    def ratio(above: str, below: str) -> Uncertain:
        return ratio_jackknife(*(np.array([getattr(slot, name) for slot in slots]) for name in (above, below)))

    early = [float(slot.runs.blocks[slot.runs.reuse_times <= horizon].sum()) for slot in slots]
    return {
        "arrival_rate": ratio("first_turns", "seconds"),
        "conversation_size": ratio("prompt_blocks", "first_turns"),
        "reuse_times": ratio_jackknife(np.array(early), np.array([slot.reusable_blocks for slot in slots])),
        "reusable_share": ratio("reusable_blocks", "prompt_blocks"),
        "blocks_in_use": ratio("in_use_blocks", "requests"),
    }

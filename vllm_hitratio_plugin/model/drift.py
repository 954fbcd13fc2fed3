"""Drift: which property of the traffic moved between two windows, and how much of the hit ratio's change it explains.

The flow form (MODEL section 3) makes the estimate a function of five factors::

    arrival_rate   λ0, conversations per second
    size           A_R, prompt blocks of a conversation; the lengths of reused runs go with it
    gaps           F, idle gaps of the reused blocks, each weighted by its blocks, and held runs
    ceiling        reused and newly written blocks, as shares of the prompt blocks
    pinned         blocks in use, ahead of everything

Each window gives all five, so ĥ can be computed for any mixture of the two windows' factors. A factor's part of the
change is its Shapley value: the change it makes, averaged over all orders in which the factors can be exchanged. The
parts add up to ĥ(now) - ĥ(before) exactly, and no order is preferred (Shapley 1953; Shorrocks 2013 on decompositions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np

from vllm_hitratio_plugin.model.flow import Array, Flow, FlowSketch, Uncertain, ratio_jackknife

FACTORS = ("arrival_rate", "size", "gaps", "ceiling", "pinned")

#: A factor moved if it changed by more than that many standard errors of its change. Five factors are looked at again
#: and again, so 1.96 would cry wolf.
SIGNIFICANT = 3.0


@dataclass(frozen=True)
class Moved:
    """One factor in both windows."""

    before: Uncertain
    now: Uncertain
    part: float
    """Its part of the change of the hit ratio."""

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
    factors: dict[str, Moved]
    """By ``FACTORS``."""

    @property
    def change(self) -> float:
        """ĥ now minus before; the sum of all parts."""
        return self.now - self.before

    @property
    def moved(self) -> tuple[str, ...]:
        """The factors that changed beyond their standard errors, the one that explains most first."""
        names = [name for name, factor in self.factors.items() if factor.significant]
        return tuple(sorted(names, key=lambda name: -abs(self.factors[name].part)))


def drift(before: Sequence[FlowSketch], now: Sequence[FlowSketch], capacity: float) -> Drift | None:
    """Compare two windows of one engine, both lists of consecutive time slots.

    ``gaps`` is measured by the share of the reused blocks idle for less than T_C of the window before, the rest as
    they are; standard errors are jackknives over the slots.

    Returns None where a window has no conversation that starts, or nothing that is reused.
    """
    windows = [FlowSketch.total(list(slots)) for slots in (before, now)]
    if any(not (whole.seconds and whole.first_turns and whole.reusable_blocks) for whole in windows):
        return None
    traffics = [_Traffic.of(whole) for whole in windows]
    ratios = {chosen: _hit_ratio(traffics, chosen, capacity) for chosen in _subsets(FACTORS)}
    survival = Flow(windows[0]).characteristic_time(capacity)
    measured = [_measured(slots, np.inf if survival is None else survival) for slots in (before, now)]
    return Drift(
        ratios[frozenset()],
        ratios[frozenset(FACTORS)],
        {name: Moved(measured[0][name], measured[1][name], _shapley(name, ratios)) for name in FACTORS},
    )


@dataclass(frozen=True)
class _Traffic:
    """One window, taken apart into the factors; the product of all is the window again."""

    arrival_rate: float
    size: float
    gaps: Array
    """Idle seconds, blocks as a share of all, lengths in units of A_R; (3, n)."""
    ceiling: tuple[float, float]
    pinned: float

    @classmethod
    def of(cls, whole: FlowSketch) -> _Traffic:
        size = whole.prompt_blocks / whole.first_turns
        runs, blocks, gap_blocks = whole.cells[1], whole.cells[2], whole.cells[3]
        return cls(
            whole.first_turns / whole.seconds,
            size,
            np.array([gap_blocks / blocks, blocks / blocks.sum(), blocks / runs / size]),
            (whole.reusable_blocks / whole.prompt_blocks, whole.written_blocks / whole.prompt_blocks),
            whole.pinned_blocks / whole.requests,
        )


def _hit_ratio(windows: Sequence[_Traffic], exchanged: frozenset[str], capacity: float) -> float:
    """ĥ(N) with the ``exchanged`` factors of the second window and the others of the first."""
    arrival_rate, size, gaps, ceiling, pinned = (getattr(windows[name in exchanged], name) for name in FACTORS)
    prompts = arrival_rate * size
    reused, written = ceiling
    blocks, lengths = gaps[1] * reused * prompts, gaps[2] * size
    sketch = FlowSketch(
        seconds=1.0,
        requests=1.0,
        prompt_blocks=prompts,
        written_blocks=written * prompts,
        reusable_blocks=reused * prompts,
        pinned_blocks=pinned,
        cells=np.array([np.arange(len(blocks)), blocks / lengths, blocks, gaps[0] * blocks, np.zeros(len(blocks))]),
    )
    ratio = Flow(sketch).hit_ratio(capacity)
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


def _measured(slots: Sequence[FlowSketch], survival: float) -> dict[str, Uncertain]:
    def ratio(above: str, below: str) -> Uncertain:
        return ratio_jackknife(*(np.array([getattr(slot, name) for slot in slots]) for name in (above, below)))

    cells = [slot.cells for slot in slots]
    early = np.array([float(cell[2, cell[3] <= survival * cell[2]].sum()) for cell in cells])
    return {
        "arrival_rate": ratio("first_turns", "seconds"),
        "size": ratio("prompt_blocks", "first_turns"),
        "gaps": ratio_jackknife(early, np.array([slot.reusable_blocks for slot in slots])),
        "ceiling": ratio("reusable_blocks", "prompt_blocks"),
        "pinned": ratio("pinned_blocks", "requests"),
    }

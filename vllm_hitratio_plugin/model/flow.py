"""The reuse-time estimator: the paper's mean field in flow form (MODEL section 3) with the accounting of section 4.

Multiplying the paper's quantities by λ0 turns means over finished conversations into rates that any window measures::

    d(t) = ν t + ∫_0^t (a(∞) - a(u)) du          displacement, blocks         (2)(29)
    d(T_C) = N                                    characteristic time, seconds (30)(38)

Here a(u) counts each reused block by its own idle gap, so nothing is assumed about independence of gaps and sizes, and
no conversation has to end. A run of E blocks that lay idle for g has, with D = d(g) blocks moved ahead of it,
``min(E, max(0, N - D))`` of them left, because a suffix is evicted before its prefix (MODEL 4.4).

Traffic is never quite stationary. :class:`Flow` averages a stretch of it, which gives the curve, T_C and what-ifs;
:func:`local_displacement` integrates the same flows over the time slots that a gap really spans, which halves the
error under bursts and daily waves. :class:`Fit` predicts from the latter.

The same equation, in other clocks: working sets (Denning and Schwartz 1972), Che's approximation (2002), StatStack
(Eklov and Hagersten 2010), AET (Hu et al. 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Gaps are binned 4 % wide from a millisecond on, run lengths by a factor of √2; each cell keeps exact sums, so the
#: binning only blurs the joint law inside a cell.
_GAP_FLOOR_S = 1e-3
_GAP_STEP = float(np.log(1.04))
_LENGTH_STEP = float(np.log(2.0) / 2)
_LENGTH_BINS = 64

#: Bin numbers below this are looked up in a table: gaps of up to 30 years, at all lengths.
_TABLE = 1 << 16

#: Halvings before the ramps of a curve are sorted: one in some thousands is left.
_HALVINGS = 12

#: Bins of prompt lengths for a factor of two.
SIZES_AN_OCTAVE = 4


@dataclass
class FlowSketch:
    """Additive sums of one stretch of traffic; adding two sketches is the sketch of both stretches.

    ``cells`` is a (5, n) array: bin number, runs, blocks, Σ gap·blocks in s·blocks, and of the blocks those last used
    by the same conversation. Memory: 40 bytes a cell, at most 600 × 64 cells, in practice as many as there are
    different (gap, length) pairs.
    """

    seconds: float = 0.0
    requests: float = 0.0
    """Prompts admitted."""
    prompt_blocks: float = 0.0
    """Σ R, blocks: ρ times seconds."""
    hit_blocks: float = 0.0
    """Observed hits, blocks."""
    written_blocks: float = 0.0
    """Blocks written anew that displace cached ones: ν times seconds (MODEL 4.1, 4.2)."""
    reusable_blocks: float = 0.0
    """Σ of the runs' lengths, blocks: a(∞) times seconds, gap 0 included."""
    reuse_runs: float = 0.0
    """Runs of reusable blocks seen: the number of gaps."""
    pinned_blocks: float = 0.0
    """Σ over the prompts of the blocks in use just before each."""
    first_turns: float = 0.0
    """Prompts that start a conversation: λ0 times seconds."""
    grown_blocks: float = 0.0
    """Σ (R_j - R_{j-1}), blocks: λ0 E[B] times seconds, the paper's accounting."""
    returning_blocks: float = 0.0
    """Reusable blocks of returning prompts, blocks: λ0 A_H^hash times seconds."""
    cells: Array = field(default_factory=lambda: np.empty((5, 0)))
    turn_gaps: Array = field(default_factory=lambda: np.empty((3, 0)))
    """Interarrival times of prompts within a conversation, (3, n): bin number, turns, Σ gap in s."""
    _tail: tuple[Array, Array] | None = field(default=None, repr=False, compare=False)
    """:meth:`tail_integral`, kept while no run is added."""
    lags: Array = field(default_factory=lambda: np.empty((2, 0)))
    """Reusable blocks that the conversation's k-th last prompt had already, (2, n): k, blocks."""
    sizes: Array = field(default_factory=lambda: np.empty((3, 0)))
    """Prompts by length, (3, n): k for 2^{k/4} to 2^{(k+1)/4} tokens, prompts, Σ tokens."""

    def __add__(self, other: FlowSketch) -> FlowSketch:
        return FlowSketch.total([self, other])

    @classmethod
    def total(cls, parts: Sequence[FlowSketch], cells: bool = True) -> FlowSketch:
        """The sketch of all parts together; an empty one for no parts; without ``cells`` where they are not needed."""
        whole = cls()
        for item in fields(cls):
            if item.name == "_tail":
                continue
            values = [getattr(part, item.name) for part in parts]
            if item.name in ("cells", "turn_gaps", "lags", "sizes"):
                if values and (cells or item.name != "cells"):
                    setattr(whole, item.name, _merge(np.concatenate(values, axis=1)))
            else:
                setattr(whole, item.name, float(sum(values)))
        return whole

    def add_runs(self, gaps: Array, lengths: Array, own: Array | float = 0.0, counts: Array | float = 1.0) -> None:
        """Count runs of ``lengths`` blocks that lay idle for ``gaps`` seconds (both shape (n,)), each ``counts`` times.

        ``own`` is 1 where the conversation itself used them last, 0 where another one did.
        """
        if len(gaps) == 0:
            return
        self._tail = None
        length_bin = np.clip(np.floor(np.log(lengths) / _LENGTH_STEP), 0, _LENGTH_BINS - 1)
        keys = _gap_bin(gaps) * _LENGTH_BINS + length_bin
        blocks = counts * lengths
        rows = [keys, counts * np.ones(len(gaps)), blocks, gaps * blocks, own * blocks]
        self.cells = _merge(np.concatenate([self.cells, rows], axis=1))

    def tail_integral(self) -> tuple[Array, Array]:
        """∫_0^y of the blocks reused with a gap above u, du: knots y in s, values in s·blocks."""
        if self._tail is None:
            blocks = self.cells[2]
            gaps = self.cells[3] / blocks if len(blocks) else blocks
            order = np.argsort(gaps, kind="stable")
            values = _displacement_at_gaps(0.0, gaps[order], blocks[order])
            self._tail = np.concatenate([[0.0], gaps[order]]), np.concatenate([[0.0], values])
        return self._tail

    def add_turn_gaps(self, gaps: Array) -> None:
        """Count interarrival times within conversations, s, shape (n,)."""
        if len(gaps):
            rows = [_gap_bin(gaps), np.ones(len(gaps)), gaps]
            self.turn_gaps = _merge(np.concatenate([self.turn_gaps, rows], axis=1))

    def add_sizes(self, tokens: Array) -> None:
        """Count prompts by their tokens, at least 1, shape (n,)."""
        rows = [np.floor(SIZES_AN_OCTAVE * np.log2(tokens)), np.ones(len(tokens)), tokens]
        self.sizes = _merge(np.concatenate([self.sizes, rows], axis=1))

    def add_lags(self, blocks: Sequence[float]) -> None:
        """Count reusable blocks by how many prompts ago the conversation had them: 1, 2, ... for ``blocks`` (n,)."""
        rows = [np.arange(1.0, len(blocks) + 1), np.asarray(blocks, dtype=float)]
        self.lags = _merge(np.concatenate([self.lags, rows], axis=1))


def _gap_bin(gaps: Array) -> Array:
    # Gap 0 (a request still holds the blocks) keeps a bin of its own: such a run is never displaced.
    bins = (gaps > 0.0).astype(float)
    long = gaps > _GAP_FLOOR_S
    bins[long] = 2.0 + np.floor(np.log(gaps[long] / _GAP_FLOOR_S) / _GAP_STEP)
    return bins


def _merge(rows: Array) -> Array:
    """Add up the columns of one bin; the bin numbers, in the first row, are whole and not negative."""
    keys, index = _distinct(rows[0])
    merged = np.empty((len(rows), len(keys)))
    merged[0] = keys
    for row in range(1, len(rows)):
        merged[row] = np.bincount(index, weights=rows[row], minlength=len(keys))
    return merged


def _distinct(keys: Array) -> tuple[Array, NDArray[np.intp]]:
    """The different keys, ascending, and which of them each one is: by a table, where numpy would sort."""
    if not len(keys) or keys.max() >= _TABLE:
        return np.unique(keys, return_inverse=True)
    places = keys.astype(np.intp)
    present = np.zeros(_TABLE, dtype=bool)
    present[places] = True
    found = np.flatnonzero(present)
    table = np.empty(_TABLE, dtype=np.intp)
    table[found] = np.arange(len(found))
    return found.astype(float), table[places]


@dataclass(frozen=True)
class Uncertain:
    """A figure with its standard error; None where it can't be given."""

    value: float | None
    stderr: float | None


class Flow:
    """The estimator fitted to a sketch.

    Args:
        sketch: Sums over ``sketch.seconds`` > 0 of traffic.

    All capacities are blocks of the whole cache; the blocks in use (their mean over the prompts) are ahead of
    everything and are taken off inside (MODEL 4.5).
    """

    def __init__(self, sketch: FlowSketch) -> None:
        self.sketch = sketch
        seconds = max(sketch.seconds, 1e-9)
        runs, blocks, gap_blocks = sketch.cells[1], sketch.cells[2], sketch.cells[3]
        gaps = gap_blocks / blocks if len(blocks) else blocks
        order = np.argsort(gaps, kind="stable")
        #: Mean idle gap of each cell, s, ascending; and the runs and mean run length behind it.
        self.gaps: Array = gaps[order]
        self.runs: Array = runs[order]
        self.lengths: Array = (blocks / runs)[order] if len(runs) else runs
        self.pinned = sketch.pinned_blocks / sketch.requests if sketch.requests else 0.0
        self._write_rate = sketch.written_blocks / seconds
        weights = blocks[order] / seconds
        self._displaced = _displacement_at_gaps(self._write_rate, self.gaps, weights)

    @property
    def ceiling(self) -> float | None:
        """Share of the prompt blocks that was seen before: what an unlimited cache would hit; None without traffic."""
        return self.sketch.reusable_blocks / self.sketch.prompt_blocks if self.sketch.prompt_blocks else None

    def displacement(self, time: Array | float) -> Array:
        """d(t), blocks moved ahead of a block within ``time`` seconds of its release (2)(29)."""
        knots, values = self._curve()
        time = np.asarray(time, dtype=float)
        beyond = np.maximum(time - knots[-1], 0.0) * self._write_rate
        return np.asarray(np.interp(time, knots, values) + beyond)

    def characteristic_time(self, capacity: float) -> float | None:
        """T_C in s: how long an unused block survives in ``capacity`` blocks (30); None if nothing displaces it."""
        available = capacity - self.pinned
        if available <= 0:
            return 0.0
        knots, values = self._curve()
        if available <= values[-1]:
            return float(np.interp(available, values, knots))
        if self._write_rate <= 0:
            return None
        return float(knots[-1] + (available - values[-1]) / self._write_rate)

    def hit_ratio(self, capacity: float) -> float | None:
        """ĥ(N) = a(T_C)/ρ with partial suffixes (32); None without traffic."""
        return self.fit().hit_ratio(capacity)

    def capacity_for(self, target: float) -> float | None:
        """The least capacity, blocks, whose hit ratio is ``target``; None when no capacity reaches it."""
        return self.fit().capacity_for(target)

    def fit(self) -> Fit:
        """The runs by what is ahead of them, d(g) and the blocks in use: hits at any capacity."""
        sketch = self.sketch
        ahead = np.where(self.gaps > 0.0, self._displaced + self.pinned, -self.lengths)
        return Fit(self.runs, self.lengths, ahead, sketch.prompt_blocks, least_capacity=self.pinned)

    def _curve(self) -> tuple[Array, Array]:
        return np.concatenate([[0.0], self.gaps]), np.concatenate([[0.0], self._displaced])


def _displacement_at_gaps(write_rate: float, gaps: Array, weights: Array) -> Array:
    """d at each gap (ascending), for reuse ``weights`` in blocks/s: ∫ of the tail = Σ w·min(t, g)."""
    moved = np.cumsum(weights)
    return np.asarray(write_rate * gaps + np.cumsum(weights * gaps) + gaps * (float(weights.sum()) - moved))


def local_displacement(parts: Sequence[FlowSketch]) -> Array:
    """D of each cell of the last of consecutive ``parts``: blocks moved ahead during the slots its gap spans; (n,).

    A lookup at time t finds D = ∫_0^g [ν(t-v) + tail_{t-v}(g-v)] dv, where the rates of each slot are taken constant
    and t is the middle of the last slot. The two accesses of the run itself, at t and t - g, are smeared over their
    slots and so counted in part; as they did not happen in between, that part is taken off again.
    """
    last = parts[-1]
    blocks = last.cells[2]
    gaps = last.cells[3] / blocks if len(blocks) else blocks
    displaced = np.zeros(len(gaps))
    if len(gaps) == 0:
        return displaced
    longest = float(gaps.max())
    half = last.seconds / 2
    near = 0.0
    written = seconds = 0.0
    for part in reversed(parts):
        far = half if part is last else near + part.seconds
        if near >= longest:
            break
        if part.seconds > 0:
            before, after = np.maximum(gaps - far, 0.0), np.maximum(gaps - near, 0.0)
            knots, values = part.tail_integral()
            moved = np.interp(after, knots, values) - np.interp(before, knots, values)
            displaced += (part.written_blocks * (after - before) + moved) / part.seconds
            written += part.written_blocks
            seconds += part.seconds
        near = far
    if longest > near and seconds > 0:
        displaced += np.maximum(gaps - near, 0.0) * written / seconds
    if last.seconds > 0:
        lengths = blocks / last.cells[1]
        displaced -= 2 * lengths * np.minimum(gaps, half) / last.seconds
    return np.maximum(displaced, 0.0)


@dataclass(frozen=True)
class Fit:
    """Runs of blocks by what is ahead of them in the LRU order: hits at any capacity, and the inverse.

    Attributes:
        runs: How often each kind of run was looked up, (n,).
        lengths: Its blocks, (n,).
        ahead: Blocks ahead of its first one, those in use included, (n,); at most ``-lengths`` where a request holds
            the run, which no capacity can lose.
        prompt_blocks: Denominator of the ratios.
        least_capacity: Blocks in use: no cache can be smaller.
    """

    runs: Array
    lengths: Array
    ahead: Array
    prompt_blocks: float
    least_capacity: float = 0.0

    @classmethod
    def of_slot(cls, sketch: FlowSketch, displaced: Array) -> Fit:
        """The runs of one time slot with their :func:`local_displacement`."""
        runs, blocks, gap_blocks = sketch.cells[1], sketch.cells[2], sketch.cells[3]
        lengths = blocks / runs if len(runs) else runs
        pinned = sketch.pinned_blocks / sketch.requests if sketch.requests else 0.0
        # A run still held by a request is in the cache whatever is ahead of it.
        ahead = np.where(gap_blocks > 0.0, displaced + pinned, -lengths)
        return cls(runs, lengths, ahead, sketch.prompt_blocks, pinned)

    @classmethod
    def total(cls, fits: Sequence[Fit]) -> Fit:
        """All the runs of several slots together."""
        prompts = float(sum(fit.prompt_blocks for fit in fits))
        pinned = sum(fit.least_capacity * fit.prompt_blocks for fit in fits) / prompts if prompts else 0.0
        if not fits:
            nothing = np.empty(0)
            return cls(nothing, nothing, nothing, 0.0)
        return cls(
            np.concatenate([fit.runs for fit in fits]),
            np.concatenate([fit.lengths for fit in fits]),
            np.concatenate([fit.ahead for fit in fits]),
            prompts,
            pinned,
        )

    def hit_blocks(self, capacities: Array | Sequence[float]) -> Array:
        """Expected hits in blocks at each capacity, (k,): ``min(E, max(0, N - D))`` a run (MODEL 4.4)."""
        room = np.asarray(capacities, dtype=float)[:, None] - self.ahead
        return np.asarray((np.clip(room, 0.0, self.lengths) * self.runs).sum(axis=1))

    def hit_ratio(self, capacity: float) -> float | None:
        """ĥ(N); None without traffic."""
        return float(self.hit_blocks([capacity])[0]) / self.prompt_blocks if self.prompt_blocks else None

    def capacity_for(self, target: float) -> float | None:
        """The least capacity, blocks, whose hit ratio is ``target``; None when no capacity reaches it.

        Closed form: the hits are a sum of ramps from D to D + E, so the curve is piecewise linear in N and is inverted
        exactly. Halving finds the stretch that the answer lies in first, so that few ramps are left to sort.
        """
        # Rounding must not put the target a hair above the last knot.
        wanted = target * self.prompt_blocks * (1 - 1e-9)
        if not self.prompt_blocks or wanted > float((self.runs * self.lengths).sum()):
            return None
        if wanted <= self._hits(self.least_capacity):
            return self.least_capacity
        ends = self.ahead + self.lengths
        low, high = self.least_capacity, float(ends.max())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._hits(middle) < wanted:
                low = middle
            else:
                high = middle
        starting, ending = (self.ahead > low) & (self.ahead < high), (ends > low) & (ends < high)
        knots = np.concatenate([self.ahead[starting], ends[ending]])
        order = np.argsort(knots, kind="stable")
        knots = np.concatenate([[low], knots[order], [high]])
        turns = np.concatenate([self.runs[starting], -self.runs[ending]])[order]
        slopes = self.runs[(self.ahead <= low) & (ends > low)].sum() + np.concatenate([[0.0], np.cumsum(turns)])
        hits = self._hits(low) + np.concatenate([[0.0], np.cumsum(slopes * np.diff(knots))])
        index = min(max(int(np.searchsorted(hits, wanted)), 1), len(knots) - 1)
        rise = hits[index] - hits[index - 1]
        share = min((wanted - hits[index - 1]) / rise, 1.0) if rise > 0 else 1.0
        return float(knots[index - 1] + share * (knots[index] - knots[index - 1]))

    def _hits(self, capacity: float) -> float:
        return float(self.hit_blocks([capacity])[0])


def ratio_jackknife(numerators: Array, denominators: Array) -> Uncertain:
    """Σ numerators / Σ denominators over the parts of a window, with its delete-one-part standard error; both (G,)."""
    numerator, denominator = float(numerators.sum()), float(denominators.sum())
    if denominator <= 0:
        return Uncertain(None, None)
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

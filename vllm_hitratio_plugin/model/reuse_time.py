"""The reuse-time estimator: the paper's mean field in flow form, with full accounting (docs/model.md#flow-form).

Multiplying the paper's quantities by λ0 turns means over finished conversations into rates that any window measures::

    d(t) = ν t + ∫_0^t (a(∞) - a(u)) du          displacement, blocks         (2)(29)
    d(T_C) = N                                    characteristic time, seconds (30)(38)

Here a(u) counts each reused block by its own reuse time, so nothing is assumed about independence of times and sizes,
and no conversation has to end. A run of E blocks reused after a time t, with D = d(t) blocks moved ahead of it, has
``min(E, max(0, N - D))`` of them left, because a suffix is evicted before its prefix (docs/model.md#suffix-first).

Traffic is never quite stationary. :class:`ReuseTimeModel` averages a stretch of it, which gives T_C and what-ifs;
:func:`local_displacement` integrates the same flows over the time slots that a reuse time really spans, which halves
the error under bursts and daily waves. Predictions use the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from vllm_hitratio_plugin.model.hit_ratio_curve import HitRatioCurve
from vllm_hitratio_plugin.model.traffic import Array, TrafficSums


class ReuseTimeModel:
    """The estimator fitted to the sums of a stretch of traffic.

    Args:
        sums: Over ``sums.seconds`` > 0 of traffic.

    All capacities are blocks of the whole cache; the blocks in use (their mean over the requests) are ahead of
    everything and are taken off inside (docs/model.md#release-clock-and-blocks-in-use).
    """

    def __init__(self, sums: TrafficSums) -> None:
        self.sums = sums
        self.in_use_blocks = sums.mean_in_use_blocks
        seconds = max(sums.seconds, 1e-9)
        self._write_rate = sums.written_blocks / seconds
        self._reuse_rate = 1 / seconds

    @property
    def ceiling(self) -> float | None:
        """Share of the prompt blocks seen before: the infinite-cache hit ratio; None without traffic."""
        return self.sums.reusable_blocks / self.sums.prompt_blocks if self.sums.prompt_blocks else None

    def displacement(self, time: Array | float) -> Array:
        """d(t), blocks moved ahead of a block within ``time`` seconds of its release (2)(29)."""
        knots, values = self._knots
        time = np.asarray(time, dtype=float)
        beyond = np.maximum(time - knots[-1], 0.0) * self._write_rate
        return np.asarray(np.interp(time, knots, values) + beyond)

    def characteristic_time(self, capacity: float) -> float:
        """T_C in s: how long an unused block stays in ``capacity`` blocks (30); ``inf`` if nothing displaces it."""
        available = capacity - self.in_use_blocks
        if available <= 0:
            return 0.0
        knots, values = self._knots
        if available <= values[-1]:
            return float(np.interp(available, values, knots))
        if self._write_rate <= 0:
            return float("inf")
        return float(knots[-1] + (available - values[-1]) / self._write_rate)

    @cached_property
    def curve(self) -> HitRatioCurve:
        """The runs by what moved ahead of them on average, d(t) and the blocks in use."""
        sums = self.sums
        displaced = self.displacement(sums.runs.reuse_times)
        return HitRatioCurve.of(sums.runs, displaced, self.in_use_blocks, sums.prompt_blocks)

    @cached_property
    def _knots(self) -> tuple[Array, Array]:
        # d is linear between reuse times.
        times, tails = self.sums.runs.tail_integral
        return times, self._write_rate * times + self._reuse_rate * tails


def local_displacement(parts: Sequence[TrafficSums]) -> Array:
    """D of each run of the last of consecutive ``parts``: blocks moved ahead during the slots it spans; (n,).

    A lookup at time t finds D = ∫_0^g [ν(t-v) + tail_{t-v}(g-v)] dv after a reuse time g, where the rates of each slot
    are taken as constant and t is the middle of the last slot. The two accesses of the run itself, at t and t - g, are
    smeared over their slots and so counted in part; as they did not happen in between, that part is taken off again
    (docs/model.md#local-displacement).
    """
    last = parts[-1]
    times = last.runs.reuse_times
    moved = np.zeros(len(times))
    if len(times) == 0:
        return moved
    longest = float(times.max())
    half = last.seconds / 2
    # Ends of the slots, s before the lookup, and blocks written from there on.
    ends, written = [0.0], [0.0]
    total = seconds = 0.0
    # What is left of each reuse time behind the slots so far.
    left = times
    for part in reversed(parts):
        near = ends[-1]
        if near >= longest:
            break
        if part.seconds > 0:
            length = half if part is last else part.seconds
            beyond = np.maximum(times - (near + length), 0.0)
            if part.runs.count:
                knots, values = part.runs.tail_integral
                moved += (np.interp(left, knots, values) - np.interp(beyond, knots, values)) / part.seconds
            left = beyond
            ends.append(near + length)
            written.append(written[-1] + part.written_blocks * length / part.seconds)
            total += part.written_blocks
            seconds += part.seconds
    displaced = np.interp(times, ends, written) + moved
    if longest > ends[-1] and seconds > 0:
        displaced += np.maximum(times - ends[-1], 0.0) * total / seconds
    if last.seconds > 0:
        displaced -= 2 * last.runs.lengths * np.minimum(times, half) / last.seconds
    return np.maximum(displaced, 0.0)


def slot_curve(sums: TrafficSums, history: Sequence[TrafficSums]) -> HitRatioCurve:
    """The curve of one time slot after the slots of its ``history``, oldest first."""
    displaced = local_displacement([*history, sums])
    return HitRatioCurve.of(sums.runs, displaced, sums.mean_in_use_blocks, sums.prompt_blocks)

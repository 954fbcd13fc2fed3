"""The sliding window: time cut into slots, the oldest dropped (docs/model.md#windows-and-confidence)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.traffic import Array, TrafficSums
from vllm_hitratio_plugin.stats.slot import Slot


@dataclass(frozen=True)
class Span:
    """The slots of a window, oldest first, and as many before them as are remembered, up to their number."""

    before: Sequence[Slot]
    closed: Sequence[Slot]
    current: Slot | None
    """The slot that is not over yet; None where it has neither time nor traffic."""
    sums: TrafficSums
    """Of the whole window."""

    @property
    def slots(self) -> list[Slot]:
        """All of them, the current one last."""
        return [*self.closed, self.current] if self.current is not None else list(self.closed)


class Window:
    """Equal time slots, each with additive sums.

    Rates are taken as constant within a slot, which bursts are not, so a slot may be cut in parts (:meth:`cut`); they
    are remembered one by one until the next slot is over, since short reuse times reach back to them.

    Args:
        seconds: The least length of the window, > 0.
        slots: Slots of the least window.
        capacities: Blocks; what expected hits are kept for.
        stretch: The window may grow to this many times ``seconds`` when traffic is thin.
        origin: Seconds, a slot boundary (replays align it with their measurement window).

    Memory: ``slots * stretch`` slots, and the sums of the last two slots' parts.
    """

    def __init__(
        self, seconds: float, slots: int, capacities: Sequence[float], stretch: int = 6, origin: float = 0.0
    ) -> None:
        self.seconds = seconds
        self.slot_seconds = seconds / slots
        self.capacities: Array = np.asarray(capacities, dtype=float)
        #: The last part of the current slot.
        self.open = Slot(len(self.capacities))
        #: Seconds, when the current slot ends.
        self.closes = -math.inf
        self._origin = origin
        self._closed: deque[Slot] = deque(maxlen=slots * stretch)
        # The parts of the current slot before the open one, and the sums of those of the slot before.
        self._parts: list[Slot] = []
        self._previous: list[TrafficSums] = []
        self._opened: float | None = None
        # How many closed slots were added up last, and their sums.
        self._total: tuple[int, TrafficSums] | None = None

    @property
    def history(self) -> list[TrafficSums]:
        """The sums before the open part, oldest first; the youngest slots by their parts."""
        return [
            *(closed.sums for closed in list(self._closed)[:-1]),
            *self._previous,
            *(part.sums for part in self._parts),
        ]

    def measure(self, time: float) -> None:
        """The open part lasts until ``time`` so far, which must lie in its slot."""
        self.open.sums.seconds = 0.0 if self._opened is None else max(time - self._opened, 0.0)

    def divisible(self, time: float) -> bool:
        """Whether the open part has traffic and began before ``time``."""
        return self._opened is not None and bool(self.open.sums.requests) and time > self._opened

    def cut(self, time: float) -> None:
        """End the open part at ``time``, which must lie in its slot."""
        self.measure(time)
        self._parts.append(self.open)
        self._total = None
        self.open = Slot(len(self.capacities))
        self._opened = time

    def advance(self, time: float) -> bool:
        """Close every slot that ended by ``time``; idle slots count, with their seconds and no traffic.

        Returns whether a slot was closed.
        """
        if self._opened is None:
            self._open_at(time)
            return False
        if time < self.closes:
            return False
        for _ in range((self._closed.maxlen or 0) + 1):
            if time < self.closes:
                return True
            self.cut(self.closes)
            self.closes += self.slot_seconds
            self._closed.append(Slot.total(self._parts))
            self._previous = [part.sums for part in self._parts]
            self._parts = []
        # Idle for longer than anything is remembered: every slot is empty, so just take the time from here.
        self._open_at(time)
        return True

    def span(self, least_runs: float = 0.0, least_seconds: float = 0.0) -> Span:
        """The current window; below ``least_runs`` or ``least_seconds`` it is stretched beyond its least length."""
        current: Slot | None = Slot.total([*self._parts, self.open])
        assert current is not None
        sums = current.sums
        if not sums.seconds and not sums.requests:
            current = None
        runs, seconds = sums.reuse_runs, sums.seconds
        # Half a slot of slack: the current slot is rarely whole.
        least_seconds = max(least_seconds, self.seconds - 0.5 * self.slot_seconds)
        first = len(self._closed)
        closed = list(self._closed)
        while first and (seconds < least_seconds or runs < least_runs):
            first -= 1
            runs += closed[first].sums.reuse_runs
            seconds += closed[first].sums.seconds
        chosen = closed[first:]
        length = len(chosen) + (current is not None)
        if self._total is None or self._total[0] != len(chosen):
            self._total = (len(chosen), TrafficSums.total([slot.sums for slot in chosen]))
        return Span(closed[max(first - length, 0) : first], chosen, current, self._total[1] + sums)

    def _open_at(self, time: float) -> None:
        self._opened = time
        steps = math.floor((time - self._origin) / self.slot_seconds) + 1
        self.closes = self._origin + steps * self.slot_seconds

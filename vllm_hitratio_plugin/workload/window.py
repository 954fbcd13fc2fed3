"""The sliding window: additive slots of traffic, the oldest dropped, chosen long enough for the question asked."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vllm_hitratio_plugin.model.flow import Fit, FlowSketch, local_displacement
from vllm_hitratio_plugin.workload import ledger as ledgers


class Slot:
    """One stretch of time: its sketch, and what is expected of it at each capacity asked about.

    Attributes:
        sketch: The sums.
        ledger: Fates of the prompts' blocks.
        shadow: Hits of exact LRUs at each of the window's capacities, blocks; (k,).
        fit: Its runs by what was ahead of them, as of the last :meth:`Window.fit`.
        expected: Expected hits, blocks, at each of the window's capacities; (k,).
    """

    __slots__ = ("expected", "fit", "ledger", "shadow", "sketch")

    def __init__(self, capacities: int) -> None:
        self.sketch = FlowSketch()
        self.ledger = ledgers.empty()
        self.shadow: NDArray[np.float64] = np.zeros(capacities)
        self.fit = Fit.total([])
        self.expected: NDArray[np.float64] = np.zeros(capacities)


class Window:
    """Time cut into slots, each an additive sketch (MODEL section 5).

    Slots are equal. Rates are taken as constant within a slot, which bursts are not, so a slot may be fitted in parts
    (:meth:`cut`); they are remembered one by one until the next slot is over, since short gaps reach back to them.

    Args:
        seconds: The least length of the window, > 0.
        slots: Slots of the least window.
        capacities: Blocks; what expected hits are kept for.
        stretch: The window may grow to this many times ``seconds`` when traffic is thin.
        origin: Seconds, a slot boundary (replays align it with their measurement window).

    Memory: ``slots * stretch`` sketches, and those of the last two slots' parts.
    """

    def __init__(
        self, seconds: float, slots: int, capacities: Sequence[float], stretch: int = 6, origin: float = 0.0
    ) -> None:
        self.seconds = seconds
        self.slot_seconds = seconds / slots
        self.capacities: NDArray[np.float64] = np.asarray(capacities, dtype=float)
        self._origin = origin
        self._closed: deque[Slot] = deque(maxlen=slots * stretch)
        #: The last part of the current slot, and the whole slot as :meth:`slots` last gave it.
        self.open = self.current = Slot(len(self.capacities))
        # The parts of the current slot before it, and the sketches of those of the slot before.
        self._parts: list[Slot] = []
        self._previous: list[FlowSketch] = []
        self._opened: float | None = None
        self._total: tuple[int, FlowSketch] | None = None
        #: Seconds, when the open slot has to be closed.
        self.closes = -math.inf

    def advance(self, time: float) -> list[Slot]:
        """Close every slot that ended by ``time``; idle slots count, with their seconds and no traffic.

        Returns the last parts of the closed slots, where they had traffic, fitted for good.
        """
        if self._opened is None:
            self._open_at(time)
            return []
        closed = []
        for _ in range((self._closed.maxlen or 0) + 1):
            if time < self.closes:
                break
            last = self._close(self._opened, self.closes)
            if last.sketch.requests:
                closed.append(last)
            self.closes += self.slot_seconds
            self._closed.append(_joined(self._parts))
            self._previous = [part.sketch for part in self._parts]
            self._parts = []
        else:
            # Idle for longer than anything is remembered: every slot is empty, so just take the time from here.
            self._open_at(time)
        return closed

    def cut(self, time: float) -> Slot | None:
        """End a part of the current slot at ``time``, which must lie in it; returns it, fitted for good, or None."""
        if self._opened is None or not self.open.sketch.requests or time <= self._opened:
            return None
        return self._close(self._opened, time)

    def fit(self, time: float) -> None:
        """Bring the open slot's fit up to ``time``, which must lie in it."""
        opened = self._opened if self._opened is not None else time
        self.open.sketch.seconds = max(time - opened, 0.0)
        self._fit_open()

    def slots(self, least_runs: float = 0.0, least_seconds: float = 0.0) -> list[Slot]:
        """The slots of the current window, oldest first, the open one included.

        Args:
            least_runs, least_seconds: Below these the window is stretched beyond its least length.
        """
        self.current = current = _joined([*self._parts, self.open])
        chosen = [current] if current.sketch.seconds > 0 or current.sketch.requests else []
        runs = current.sketch.reuse_runs
        seconds = current.sketch.seconds
        # Half a slot of slack: the current slot is rarely whole.
        least_seconds = max(least_seconds, self.seconds - 0.5 * self.slot_seconds)
        for slot in reversed(self._closed):
            if seconds >= least_seconds and runs >= least_runs:
                break
            chosen.append(slot)
            runs += slot.sketch.reuse_runs
            seconds += slot.sketch.seconds
        chosen.reverse()
        return chosen

    def before(self, slots: Sequence[Slot]) -> list[Slot]:
        """As many closed slots just before those that :meth:`slots` gave, oldest first; fewer near the start."""
        end = len(self._closed) - sum(slot is not self.current for slot in slots)
        return list(self._closed)[max(end - len(slots), 0) : end]

    def total(self, slots: Sequence[Slot]) -> FlowSketch:
        """The sketch of all of :meth:`slots` together; what the closed ones add up to is kept until the next closes."""
        closed = [slot.sketch for slot in slots if slot is not self.current]
        if self._total is None or self._total[0] != len(closed):
            self._total = (len(closed), FlowSketch.total(closed))
        return self._total[1] + self.current.sketch

    def _close(self, opened: float, time: float) -> Slot:
        closed = self.open
        closed.sketch.seconds = time - opened
        self._fit_open()
        self._parts.append(closed)
        self._total = None
        self.open = Slot(len(self.capacities))
        self._opened = time
        return closed

    def _fit_open(self) -> None:
        slot = self.open
        if slot.sketch.requests:
            # The youngest closed slot by its parts.
            history = [closed.sketch for closed in self._closed][:-1]
            history += [*self._previous, *(part.sketch for part in self._parts)]
            slot.fit = Fit.of_slot(slot.sketch, local_displacement([*history, slot.sketch]))
            slot.expected = slot.fit.hit_blocks(self.capacities)

    def _open_at(self, time: float) -> None:
        self._opened = time
        steps = math.floor((time - self._origin) / self.slot_seconds) + 1
        self.closes = self._origin + steps * self.slot_seconds


def _joined(parts: Sequence[Slot]) -> Slot:
    """One slot of consecutive parts, each fitted for good."""
    if len(parts) == 1:
        return parts[0]
    whole = Slot(0)
    whole.sketch = FlowSketch.total([part.sketch for part in parts])
    whole.fit = Fit.total([part.fit for part in parts])
    whole.ledger = np.sum([part.ledger for part in parts], axis=0)
    whole.shadow = np.sum([part.shadow for part in parts], axis=0)
    whole.expected = np.sum([part.expected for part in parts], axis=0)
    return whole

"""The monitor: access records in, the state of the hit ratio out.

One object serves the live plugin and the replays. It has no clock of its own and does no input or output: time comes
with the records. Its parts are the index (what of a prompt is known), the window (sums of time slots) and the estimator
(what the sums say).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.admission import Admissions
from vllm_hitratio_plugin.estimator import Estimator
from vllm_hitratio_plugin.model.drift import Drift
from vllm_hitratio_plugin.model.traffic import TrafficSums
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME, Counters, Estimate
from vllm_hitratio_plugin.stats.batch import Batch
from vllm_hitratio_plugin.stats.slot import Slot
from vllm_hitratio_plugin.stats.slot_parts import SlotParts
from vllm_hitratio_plugin.stats.window import Window

#: How many times the capacity the index remembers, and the curve asks about, at the most.
INDEX_FACTOR = 8

#: Runs of reused blocks that a window needs before its ratios are given.
LEAST_REUSES = 50


class Monitor:
    """Streaming estimates of the prefix cache's hit ratio, predicted and observed.

    Args:
        block_size: Tokens per block.
        capacity_blocks: N, blocks the cache can hold.
        unhashed: Where a released block without a hash goes: "tail", it displaces cached blocks like any other, or
            "head", it is allocated again at once and displaces nothing (docs/model.md#unhashed-blocks).
        window_seconds: The least sliding window.
        slots: Time slots of the window, the parts of the jackknife.
        target: The hit ratio that a capacity is recommended for, 0 to 1.
        index_blocks: Blocks remembered beyond those in use; default ``INDEX_FACTOR`` times N.
        dropped_blocks: Blocks that every hit gives up (1 with EAGLE or MTP speculative decoding).
        match_unit: Tokens per unit in which prompts hit, where that is less than a block: ratios are then of tokens.
        grid: Capacities of the curve, blocks; default :func:`capacity_grid`.
        least_requests, least_reuses: What a window needs before its ratios are given.
        origin: Seconds, a boundary of the time slots.
    """

    def __init__(
        self,
        *,
        block_size: int,
        capacity_blocks: int,
        unhashed: str = "head",
        window_seconds: float = 600.0,
        slots: int = 30,
        target: float | None = None,
        index_blocks: int | None = None,
        dropped_blocks: int = 0,
        match_unit: int | None = None,
        grid: Sequence[int] | None = None,
        least_requests: int = 200,
        least_reuses: int = LEAST_REUSES,
        origin: float = 0.0,
    ) -> None:
        self.block_size = block_size
        self.capacity_blocks = capacity_blocks
        self.grid = tuple(grid) if grid is not None else capacity_grid(capacity_blocks)
        #: Sums of the current window, as of the last refresh.
        self.sums = TrafficSums()
        #: Seconds, when the engine last dropped its cache.
        self.last_reset: float | None = None
        capacities = (capacity_blocks, *self.grid)
        self._admissions = Admissions(
            block_size=block_size,
            capacity_blocks=capacity_blocks,
            unhashed=unhashed,
            dropped_blocks=dropped_blocks,
            limit_blocks=max(index_blocks or INDEX_FACTOR * capacity_blocks, *capacities),
        )
        self._window = Window(window_seconds, slots, capacities, origin=origin)
        self._estimator = Estimator(capacities, target=target, least_requests=least_requests, least_reuses=least_reuses)
        self._parts = SlotParts(capacity_blocks)
        self._unhashed = unhashed
        self._dropped_blocks = dropped_blocks
        self._match_unit = match_unit
        self._least_reuses = least_reuses
        # What the last refresh found that the window should span, s.
        self._least_seconds = 0.0
        self._batch = Batch()
        # Of the parts of slots that are over; and with the open one, as published.
        self._counters = Counters(
            curve_hit_blocks=dict.fromkeys(self.grid, 0.0), shadow_curve_hit_blocks=dict.fromkeys(self.grid, 0.0)
        )
        self._published = self._counters.copy()
        # Expected hits of the open part, as last published.
        self._shown = np.zeros(len(capacities))
        # Reusable blocks of follow-up turns since the last refresh; blocks in use, the mean over the last batch.
        self._returning = 0.0
        self._in_use = 0.0

    @property
    def counters(self) -> Counters:
        """Sums since the start, as of the last refresh."""
        return self._published

    @property
    def drift(self) -> Drift | None:
        """The current window against the one before; None until both hold enough."""
        return self._estimator.drift

    @property
    def running(self) -> int:
        """Requests admitted and not yet released."""
        return len(self._admissions)

    @property
    def index_blocks(self) -> int:
        """Blocks remembered."""
        return self._admissions.tree.blocks

    @property
    def index_bytes(self) -> int:
        """Approximate memory of what is remembered."""
        return self._admissions.tree.bytes

    def admit(self, access: Access) -> None:
        """Count one admitted request, whose blocks are in use until :meth:`release`; a repetition is ignored."""
        time, tokens = access.time, access.tokens
        window = self._window
        if time >= window.closes:
            self._advance(time)
        elif self._parts.room <= 0:
            self._cut(time)
        match = self._admissions.admit(access)
        if match is None:
            return
        full = tokens // self.block_size
        if not access.counted:
            counters = window.open.counters
            window.open.sums.written_blocks += full - match.known
            counters.uncounted += 1
            counters.resumed += access.resumed
            counters.skipped += access.skipped and not access.resumed
            return
        conversation = match.conversation
        assert conversation is not None
        self._batch.add(access, match, conversation, full)
        self._parts.room -= full
        conversation.begin_turn(time, full, full + 1 if tokens % self.block_size else full, access.declared_turn)

    def progress(self, key: Hashable, computed_tokens: int, in_use_blocks: int | None = None) -> None:
        """More of an admitted prompt was computed or loaded; arguments as :meth:`Admissions.progress`."""
        self._admissions.progress(key, computed_tokens, in_use_blocks)

    def release(
        self,
        time: float,
        key: Hashable,
        ids: Sequence[Hashable] = (),
        cached: int = 0,
        allocated: int = 0,
        in_use_blocks: int | None = None,
    ) -> None:
        """The request released its blocks; arguments as :meth:`Admissions.release`."""
        written = self._admissions.release(time, key, ids, cached, allocated, in_use_blocks)
        if written:
            self._window.open.sums.written_blocks += written

    def reset(self, time: float) -> None:
        """The engine dropped its prefix cache."""
        self._admissions.tree.reset()
        self._window.open.counters.resets += 1
        self.last_reset = time

    def refresh(self, time: float) -> Estimate:
        """Estimate over the window that ends now, and bring all counters up to date together.

        Expected hits are counted for the same requests as the observed ones, so ratios of the counters' increases are
        exact over any time.
        """
        self._advance(time)
        self._window.measure(time)
        self._estimator.fit(self._window.open, self._window.history)
        span = self._window.span(self._least_reuses, self._least_seconds)
        # The window is stretched while it is short compared to T_C, which is only known from the window.
        self._least_seconds = self._estimator.least_seconds(span.sums)
        longer = self._window.span(self._least_reuses, self._least_seconds)
        if len(longer.closed) > len(span.closed):
            span = longer
        self.sums = span.sums
        mean_field = self._estimator.mean_field(span.sums)
        if mean_field is not None:
            # ĥ = (A_H^hash / A_R) F(T_C): each reusable block of a follow-up turn is expected with F(T_C).
            share = mean_field * span.sums.prompt_blocks / span.sums.returning_blocks
            self._counters.predicted_hit_blocks[MEAN_FIELD] += self._returning * share
        self._returning = 0.0
        self._published = self._counters.copy()
        # What is published of the open part must not be taken back: Prometheus would see a reset.
        self._shown = np.maximum(self._window.open.expected, self._shown)
        self._add(self._window.open, self._published)
        return self._estimator.estimate(time, span, mean_field)

    def _advance(self, time: float) -> None:
        self._count()
        window = self._window
        traffic = time >= window.closes and bool(window.open.sums.requests)
        if traffic:
            self._settle(window.closes)
        elif time >= window.closes:
            self._add(window.open, self._counters)
        if window.advance(time):
            self._estimator.slot_closed(traffic)
            self._parts.next_slot(self._in_use)

    def _cut(self, time: float) -> None:
        """Start a new part of the current slot, before the request of ``time`` is counted."""
        self._parts.cut()
        self._count()
        if self._window.divisible(time):
            self._settle(time)
            self._window.cut(time)

    def _count(self) -> None:
        """Count what the admissions appended, many at a time, into the open part."""
        if not self._batch:
            return
        counted = self._batch.count(self._window.capacities, self.block_size, self._dropped_blocks, self._match_unit)
        self._batch = Batch()
        self._window.open.add(counted, self.block_size, self._unhashed)
        self._returning += float(counted.requests.returning.sum())
        self._in_use = float(counted.requests.in_use.mean())

    def _settle(self, time: float) -> None:
        """The open part ends at ``time``: fit it for good, while its history is at hand."""
        self._window.measure(time)
        self._estimator.fit(self._window.open, self._window.history)
        self._shown = np.maximum(self._window.open.expected, self._shown)
        self._add(self._window.open, self._counters)
        self._shown = np.zeros_like(self._shown)

    def _add(self, slot: Slot, counters: Counters) -> None:
        """Add what a part of a slot counted, with the hits expected of it and those of the shadow."""
        counters.add(slot.counters)
        counters.written_blocks += slot.sums.written_blocks
        counters.predicted_hit_blocks[REUSE_TIME] += float(self._shown[0])
        counters.shadow_hit_blocks += float(slot.shadow[0])
        for index, capacity in enumerate(self.grid, start=1):
            counters.curve_hit_blocks[capacity] += float(self._shown[index])
            counters.shadow_curve_hit_blocks[capacity] += float(slot.shadow[index])
        counters.outcomes = [old + int(new) for old, new in zip(counters.outcomes, slot.outcomes, strict=True)]


def capacity_grid(capacity_blocks: int) -> tuple[int, ...]:
    """Capacities of the curve: 2^k and 3·2^(k-1) from N/16 to 8 N, so that replicas of like size share them.

    Example:
        >>> capacity_grid(16)
        (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    """
    sizes = sorted({size for k in range(1, 40) for size in (2**k, 3 * 2 ** (k - 1))})
    return tuple(size for size in sizes if capacity_blocks / 16 <= size <= INDEX_FACTOR * capacity_blocks)

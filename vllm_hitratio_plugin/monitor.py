"""The monitor: takes access records, keeps the workload, and says what the hit ratio is and what it should be.

One object serves the live plugin and the replays. It has no clock of its own and does no input or output: time comes
with the records.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from vllm_hitratio_plugin.estimate import MEAN_FIELD, REUSE_TIME, Counters, Estimate
from vllm_hitratio_plugin.model.drift import Drift, drift
from vllm_hitratio_plugin.model.flow import Fit, Flow, FlowSketch, Uncertain, jackknife_stderr, ratio_jackknife
from vllm_hitratio_plugin.model.interarrival import Empirical
from vllm_hitratio_plugin.model.mean_field import MeanField
from vllm_hitratio_plugin.model.workload import Workload
from vllm_hitratio_plugin.workload import batch
from vllm_hitratio_plugin.workload import ledger as ledgers
from vllm_hitratio_plugin.workload.access import Access
from vllm_hitratio_plugin.workload.batch import Pending
from vllm_hitratio_plugin.workload.conversation import LAGS, Conversation, NamedConversations
from vllm_hitratio_plugin.workload.namespaces import Namespaces
from vllm_hitratio_plugin.workload.prefix_tree import Match, Node, PrefixTree
from vllm_hitratio_plugin.workload.window import Slot, Window

#: Upper bounds of the interarrival histogram, s.
INTERARRIVAL_BOUNDS = (0.5, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 900, 1800, 3600, 7200)

#: Parts of the jackknife of the paper's estimator, few since each replica is a fit of its own.
_PAPER_GROUPS = 10

#: A slot is fitted in parts where its prompts come to more than this share of the room that requests leave in the
#: cache. A part then moves too little to evict what it brought, so that taking its rates as constant costs little,
#: however the traffic comes.
_PART_SHARE = 1 / 2

#: Cuts of a slot beyond which its parts get larger: each takes some milliseconds.
_CUTS = 40

#: Forks at this block or deeper are counted together.
FORK_DEPTHS = 256

#: How many times the capacity the index remembers, and the curve asks about, at the most.
INDEX_FACTOR = 8


class Monitor:
    """Streaming estimates of the prefix cache's hit ratio, predicted beside observed.

    Args:
        block_size: Tokens a block.
        capacity_blocks: N, blocks the cache can hold.
        unhashed: Where a released block without a hash goes: "tail", it displaces cached blocks like any other (vLLM
            up to 0.23), or "head", it is used again at once and displaces nothing (from 0.24; MODEL 4.2).
        window_seconds: The least sliding window.
        slots: Time slots of the window, the parts of the jackknife.
        target: The hit ratio that a capacity is recommended for, 0 to 1.
        index_blocks: Blocks remembered beyond those in use; default ``INDEX_FACTOR`` times N.
        dropped_blocks: Blocks that every hit gives up (1 with EAGLE or MTP speculative decoding).
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
        grid: Sequence[int] | None = None,
        least_requests: int = 200,
        least_reuses: int = 50,
        origin: float = 0.0,
    ) -> None:
        self.block_size = block_size
        self.capacity_blocks = capacity_blocks
        self.unhashed = unhashed
        self.target = target
        self.dropped_blocks = dropped_blocks
        self.grid = tuple(grid) if grid is not None else capacity_grid(capacity_blocks)
        largest = max((capacity_blocks, *self.grid))
        self.tree = PrefixTree(max(index_blocks or INDEX_FACTOR * capacity_blocks, largest))
        # Expected hits are kept for the current capacity, then the curve's.
        self.window = Window(window_seconds, slots, (capacity_blocks, *self.grid), origin=origin)
        self.last_reset: float | None = None
        #: The current window beside the one before, as of the last closed slot; None until both hold enough.
        self.drift: Drift | None = None
        self._drift_due = False
        #: The current window as of the last refresh.
        self.flow = Flow(FlowSketch())
        self._named = NamedConversations()
        self._namespaces: Namespaces | None = None
        # Deepest node, whether a block without a hash follows, and how many blocks were known before, by request.
        self._held: dict[Hashable, tuple[Node | None, int, int]] = {}
        # Such blocks in use, and such blocks free at the head of the queue: no room for cached content either way.
        self._held_unhashed = 0
        self._blank = 0
        self._least = (least_requests, least_reuses)
        self._counters = Counters(
            curve_hit_blocks=dict.fromkeys(self.grid, 0.0),
            shadow_curve_hit_blocks=dict.fromkeys(self.grid, 0.0),
            interarrival_buckets=[0] * (len(INTERARRIVAL_BOUNDS) + 1),
        )
        self._published = self._counters.copy()
        # Not counted yet: prompts and interarrival times; then reusable returning blocks since the last refresh.
        self._pending = Pending()
        self._turn_gaps = array("d")
        self._returning = 0.0
        # Expected hits of the open slot, as last published.
        self._shown = np.zeros(1 + len(self.grid))
        self._paper_stderr: float | None = None
        self._closed_slots = 0
        # Blocks asked for in a part of a slot, those of them still to come, cuts of the current slot, and the blocks
        # asked for until the last one.
        self._part = self._room = capacity_blocks * _PART_SHARE
        self._cuts = 0
        self._asked = 0.0
        # Blocks in use, the mean over the prompts counted last.
        self._in_use = 0.0
        # What the last refresh found that the window should hold, s.
        self._least_seconds = 0.0

    @property
    def counters(self) -> Counters:
        """Sums as of the last refresh."""
        return self._published

    @property
    def held(self) -> int:
        """Requests admitted and not yet released."""
        return len(self._held)

    def admit(self, access: Access) -> None:
        """Count one admitted prompt and hold its blocks until :meth:`release`; a prompt held already is not counted."""
        time, key, tokens, blocks, hits, external, pinned, name, counted, resumed, namespace, content, told = access
        if key in self._held:
            return
        if time >= self.window.closes:
            self._advance(time)
        elif self._room <= 0:
            self._cut(time)
        block_size = self.block_size
        full = tokens // block_size
        unhashed = 1 if tokens % block_size else 0
        tree = self.tree
        in_use = tree.held_blocks + self._held_unhashed if pinned is None else pinned
        match = tree.admit(blocks, full, time)
        self._held[key] = (match.node, unhashed, match.known + match.lost)
        self._held_unhashed += unhashed
        known, lost = match.known, match.lost
        if not counted:
            self.window.open.sketch.written_blocks += full - known
            self._counters.uncounted += 1
            self._counters.resumed += resumed
            return
        # What a lookup may return (MODEL 4.3): not the last token, not the dropped blocks.
        most = (full if unhashed else (tokens - 1) // block_size) - self.dropped_blocks
        reusable = known
        if known > most:
            reusable = most if most > 0 else 0
            _trim(match, known - reusable)
        conversation = match.conversation if name is None else self._named.get(name)
        if conversation is None:
            conversation = Conversation()
        blank = self._blank
        if blank:
            # What is allocated takes the blank blocks first.
            left = blank - (full + unhashed - reusable)
            self._blank = left if left > 0 else 0
        if match.forked or match.branched:
            self._forked(match)
        pending = self._pending
        pending.gaps += match.gaps
        pending.lengths += match.lengths
        pending.ahead += match.ahead
        if conversation.turns:
            previous = conversation.blocks
            self._turn_gaps.append(time - conversation.arrival)
            sizes = conversation.earlier = (previous, *conversation.earlier[: LAGS - 1])
            pending.sizes += sizes
            remembered = len(sizes)
        else:
            previous, remembered = -1 if full or name is not None else -2, 0
        if told is not None:
            self._told(conversation, told)
        pending.rows += (
            tokens,
            known,
            lost,
            math.nan if hits is None else hits,
            external,
            in_use,
            blank,
            len(match.gaps),
            time - conversation.released,
            previous,
            conversation.prompt_blocks,
            conversation.cached,
            remembered,
            0 if content is None or known else self._duplicated(namespace, content),
        )
        self._room -= full
        conversation.turns += 1
        conversation.arrival = conversation.released = time
        conversation.blocks = conversation.cached = full
        conversation.prompt_blocks = full + unhashed
        if match.node is not None:
            match.node.conversation = conversation

    def release(self, time: float, key: Hashable, blocks: Sequence[Hashable] = (), cached: int | None = None) -> None:
        """The request let its blocks go.

        Args:
            time: Seconds.
            key: As admitted; unknown keys are ignored.
            blocks: Chained ids of what the request cached, where its answer is cached too (remark B.1).
            cached: How many of them; fewer than the prompt's full blocks where its prefill was not finished. None: the
                prompt's.
        """
        held = self._held.pop(key, None)
        if held is None:
            return
        node, unhashed, before = held
        self._held_unhashed -= unhashed
        known, conversation = 0, None
        if node is not None:
            known, conversation = node.start + len(node.blocks), node.conversation
            if conversation is not None:
                conversation.released = time
        if cached is None:
            cached = known
        if cached > known:
            self.window.open.sketch.written_blocks += cached - known
            node = self.tree.extend(node, blocks, cached)
            if conversation is not None:
                conversation.cached = cached
        if self.unhashed == "head":
            self._blank += unhashed
            unhashed = 0
        self.tree.release(node, time, unhashed)
        if cached < known and node is not None:
            self._unfinished(node, max(cached, before))

    def reset(self, time: float) -> None:
        """The engine dropped its prefix cache."""
        self.tree.reset()
        self._counters.resets += 1
        self.last_reset = time

    def refresh(self, time: float) -> Estimate:
        """Fit the window that ends now, and bring all counters up to date together.

        Expected hits are counted for the same prompts as the observed ones, so ratios of the counters' increases are
        exact over any time.
        """
        self._advance(time)
        self.window.fit(time)
        slots, flow = self._slots()
        self.flow = flow
        whole = flow.sketch
        mean_field = _mean_field(whole)
        paper = mean_field.hit_ratio(self.capacity_blocks) if mean_field is not None else None
        if paper is not None:
            # ĥ = (A_H^hash / A_R) F(T_C): each reusable block of a returning prompt is expected with F(T_C).
            share = paper * whole.prompt_blocks / whole.returning_blocks
            self._counters.predicted_hit_blocks[MEAN_FIELD] += self._returning * share
        self._returning = 0.0
        self._published = self._counters.copy()
        self._count(self.window.open, self._published)
        if self._drift_due:
            self.drift, self._drift_due = self._drifted(slots), False
        return self._estimate(time, slots, flow, paper)

    def _forked(self, match: Match) -> None:
        counters = self._counters
        counters.forks += match.forked
        if match.branched:
            depth = min(match.known + match.lost, FORK_DEPTHS)
            counters.fork_depths[depth] = counters.fork_depths.get(depth, 0) + 1

    def _unfinished(self, node: Node, left: int) -> None:
        """A prompt's prefill was broken off: what lies beyond its first ``left`` blocks was never there."""
        conversation = node.conversation
        dropped = self.tree.cut(node, left)
        # They were counted as written when the prompt was admitted.
        self.window.open.sketch.written_blocks -= dropped
        if dropped and conversation is not None:
            conversation.blocks = conversation.cached = left

    def _told(self, conversation: Conversation, told: int) -> None:
        if told > 1:
            self._counters.later_turns += 1
            # A turn that is sent again has its own number seen here.
            self._counters.turns_elsewhere += conversation.told not in (told - 1, told)
        conversation.told = told

    def _duplicated(self, namespace: Hashable, content: Callable[[], Sequence[Hashable]]) -> int:
        # Content is compared only once somebody uses namespaces: until then nothing can be cached twice.
        if namespace is not None and self._namespaces is None:
            self._namespaces = Namespaces()
        return 0 if self._namespaces is None else self._namespaces.duplicated(namespace, content())

    def _advance(self, time: float) -> None:
        self._take_rows()
        closes = self.window.closes
        for slot in self.window.advance(time):
            self._count(slot, self._counters)
            self._drift_due = True
        if self.window.closes > closes:
            self._closed_slots += 1
            asked = self._asked + self._part - self._room
            free = max(self.capacity_blocks - self._in_use, 1.0)
            self._part = self._room = max(free * _PART_SHARE, asked / _CUTS)
            self._cuts, self._asked = 0, 0.0

    def _cut(self, time: float) -> None:
        """Start a new part of the current slot, before the prompt of ``time`` is counted."""
        self._asked += self._part - self._room
        self._cuts += 1
        if self._cuts % _CUTS == 0:
            self._part *= 2
        self._room = self._part
        self._take_rows()
        slot = self.window.cut(time)
        if slot is not None:
            self._count(slot, self._counters)

    def _take_rows(self) -> None:
        """Count what the admissions appended, many at a time, into the open slot."""
        slot, counters = self.window.open, self._counters
        sketch = slot.sketch
        if self._pending.rows:
            counted = batch.count(self._pending, self.window.capacities, self.block_size, self.dropped_blocks)
            self._pending = Pending()
            prompts = counted.prompts
            totals = batch.sums(prompts)
            written = totals["prompt"] if self.unhashed == "tail" else totals["full"]
            hits = totals["hit_tokens"] / self.block_size
            sketch.requests += len(prompts.tokens)
            sketch.add_sizes(prompts.tokens)
            sketch.prompt_blocks += totals["prompt"]
            sketch.hit_blocks += hits
            sketch.written_blocks += written - totals["reusable"]
            sketch.reusable_blocks += totals["reusable"]
            sketch.reuse_runs += len(counted.gaps)
            sketch.pinned_blocks += totals["in_use"]
            self._in_use = totals["in_use"] / len(prompts.tokens)
            sketch.first_turns += totals["first"]
            sketch.grown_blocks += totals["grown"]
            sketch.returning_blocks += totals["returning"]
            sketch.add_runs(counted.gaps, counted.lengths, counted.own)
            if any(counted.lags):
                sketch.add_lags(counted.lags)
            slot.shadow += counted.shadow
            slot.ledger += ledgers.tally(prompts, self.block_size)
            self._returning += totals["returning"]
            counters.requests += len(prompts.tokens)
            counters.prompt_blocks += int(totals["prompt"])
            counters.prompt_tokens += int(totals["tokens"])
            counters.external_hit_tokens += int(totals["external_tokens"])
            counters.ceiling_hit_blocks += totals["reusable"]
            counters.conversations += int(totals["first"])
            counters.short_prompts += int((prompts.most == 0).sum())
            counters.stale_blocks += int(totals["stale"])
            seen = float(np.nansum(prompts.hit_tokens))
            counters.hit_tokens += int(seen)
            counters.hit_blocks += seen / self.block_size
        if self._turn_gaps:
            turn_gaps = np.maximum(np.array(self._turn_gaps), 0.0)
            del self._turn_gaps[:]
            sketch.add_turn_gaps(turn_gaps)
            buckets = self._counters.interarrival_buckets
            places = np.searchsorted(INTERARRIVAL_BOUNDS, turn_gaps)
            for bucket, turns in enumerate(np.bincount(places, minlength=len(buckets))):
                buckets[bucket] += int(turns)
            counters.interarrival_seconds += float(turn_gaps.sum())

    def _count(self, slot: Slot, counters: Counters) -> None:
        """Add a slot's hits, expected and of the shadow, and its fates; the open slot's only to what is published."""
        fresh = slot.expected
        if counters is self._counters:
            # What was published of the open slot must not be taken back: Prometheus would see a reset.
            fresh = np.maximum(slot.expected, self._shown)
            self._shown = np.zeros_like(self._shown)
        else:
            fresh = self._shown = np.maximum(slot.expected, self._shown)
        counters.predicted_hit_blocks[REUSE_TIME] += float(fresh[0])
        counters.shadow_hit_blocks += float(slot.shadow[0])
        for index, capacity in enumerate(self.grid, start=1):
            counters.curve_hit_blocks[capacity] += float(fresh[index])
            counters.shadow_curve_hit_blocks[capacity] += float(slot.shadow[index])
        counters.ledger = (np.array(counters.ledger) + slot.ledger).tolist()

    def _slots(self) -> tuple[list[Slot], Flow]:
        """The current window: stretched while it holds too few gaps, or is short beside T_C (MODEL section 5)."""
        reuses = self._least[1]
        slots = self.window.slots(reuses, self._least_seconds)
        flow = Flow(self.window.total(slots))
        survival = flow.characteristic_time(self.capacity_blocks)
        self._least_seconds = 0.0 if survival is None else 3 * survival
        longer = self.window.slots(reuses, self._least_seconds)
        if len(longer) > len(slots):
            slots, flow = longer, Flow(self.window.total(longer))
        return slots, flow

    def _drifted(self, slots: list[Slot]) -> Drift | None:
        """The closed slots of the window against as many before them, which the window remembers anyway."""
        now = [slot.sketch for slot in slots if slot is not self.window.current]
        before = [slot.sketch for slot in self.window.before(slots)][-len(now) :]
        if len(before) < len(now):
            return None
        for window in (before, now):
            if sum(slot.requests for slot in window) < self._least[0]:
                return None
            if sum(slot.reuse_runs for slot in window) < self._least[1]:
                return None
        return drift(before, now, self.capacity_blocks)

    def _estimate(self, time: float, slots: list[Slot], flow: Flow, paper: float | None) -> Estimate:
        whole = flow.sketch
        capacity = self.capacity_blocks
        enough = whole.requests >= self._least[0]
        ready = enough and whole.reuse_runs >= self._least[1]
        nothing = Uncertain(None, None)
        predicted = observed = gap = model_gap = engine_gap = nothing
        shadow: list[float] = []
        recommended: float | None = None
        workload = _workload(whole) if ready else None
        curve: dict[int, float] = {}
        if ready:
            expected = np.array([slot.expected for slot in slots])
            prompts = np.array([slot.sketch.prompt_blocks for slot in slots])
            hits = np.array([slot.sketch.hit_blocks for slot in slots])
            predicted = ratio_jackknife(expected[:, 0], prompts)
            if not np.isnan(hits).any():
                observed = ratio_jackknife(hits, prompts)
                # Both sides share the noise of the same prompts, so the difference itself is jackknifed.
                gap = ratio_jackknife(hits - expected[:, 0], prompts)
            ratios = expected.sum(axis=0) / prompts.sum()
            shadows = np.array([slot.shadow for slot in slots])
            shadow = [float(ratio) for ratio in shadows.sum(axis=0) / prompts.sum()]
            model_gap = ratio_jackknife(expected[:, 0] - shadows[:, 0], prompts)
            if observed.value is not None:
                engine_gap = ratio_jackknife(hits - shadows[:, 0], prompts)
            curve = {size: float(ratio) for size, ratio in zip(self.grid, ratios[1:], strict=True)}
            if self._paper_stderr is None or self._closed_slots >= len(slots) / _PAPER_GROUPS:
                # It takes many fits, so it waits until a part of the window is new.
                self._paper_stderr = _mean_field_stderr([slot.sketch for slot in slots], capacity)
                self._closed_slots = 0
            if self.target is not None:
                recommended = Fit.total([slot.fit for slot in slots]).capacity_for(self.target)
        return Estimate(
            time=time,
            window_seconds=whole.seconds,
            requests=int(whole.requests),
            reuses=int(whole.reuse_runs),
            ready=ready,
            capacity_blocks=capacity,
            pinned_blocks=flow.pinned if whole.requests else None,
            observed=observed.value,
            observed_stderr=observed.stderr,
            predicted={REUSE_TIME: predicted.value, MEAN_FIELD: paper if ready else None},
            predicted_stderr={REUSE_TIME: predicted.stderr, MEAN_FIELD: self._paper_stderr if ready else None},
            gap=gap.value,
            gap_stderr=gap.stderr,
            shadow=shadow[0] if ready else None,
            model_gap=model_gap.value,
            model_gap_stderr=model_gap.stderr,
            engine_gap=engine_gap.value,
            engine_gap_stderr=engine_gap.stderr,
            ceiling=flow.ceiling if ready else None,
            arrival_rate=workload.arrival_rate if workload else None,
            history_workload=workload.history_workload if workload else None,
            reusable_workload=workload.reusable_workload if workload else None,
            lifetime_blocks=workload.lifetime_blocks if workload else None,
            turns=workload.turns if workload else None,
            characteristic_time=flow.characteristic_time(capacity) if enough else None,
            survival={size: flow.characteristic_time(size) for size in self.grid} if enough else {},
            target=self.target,
            reachable=(recommended is not None) if ready and self.target is not None else None,
            recommended_blocks=recommended,
            curve=curve,
            shadow_curve=dict(zip(self.grid, shadow[1:], strict=True)) if ready else {},
            ledger=sum((slot.ledger for slot in slots), ledgers.empty()).tolist(),
            drift={} if self.drift is None else {name: moved.part for name, moved in self.drift.factors.items()},
            drifted=[] if self.drift is None else list(self.drift.moved),
        )


def _trim(match: Match, excess: int) -> None:
    """Take the last ``excess`` blocks off the known runs."""
    while excess > 0:
        if match.lengths[-1] > excess:
            match.lengths[-1] -= excess
            break
        excess -= match.lengths.pop()
        match.gaps.pop()
        match.ahead.pop()


def capacity_grid(capacity_blocks: int) -> tuple[int, ...]:
    """Capacities of the curve: 2^k and 3·2^(k-1) from N/16 to 8 N, so that replicas of like size share them."""
    sizes = sorted({size for k in range(1, 40) for size in (2**k, 3 * 2 ** (k - 1))})
    return tuple(size for size in sizes if capacity_blocks / 16 <= size <= INDEX_FACTOR * capacity_blocks)


def _workload(sketch: FlowSketch) -> Workload | None:
    """The paper's means from rates, as X = (λ0 X) / λ0; None where no conversation started in the window."""
    if sketch.first_turns <= 0 or sketch.seconds <= 0:
        return None
    started = sketch.first_turns
    return Workload(
        arrival_rate=started / sketch.seconds,
        history_workload=sketch.prompt_blocks / started,
        reusable_workload=sketch.returning_blocks / started,
        lifetime_blocks=sketch.grown_blocks / started,
        turns=sketch.requests / started,
    )


def _mean_field(sketch: FlowSketch) -> MeanField | None:
    """The paper's estimator (39) on the window; None where the window lacks a start or a returning turn."""
    workload = _workload(sketch)
    if workload is None or workload.reusable_workload <= 0 or sketch.turn_gaps.shape[1] == 0:
        return None
    turns, seconds = sketch.turn_gaps[1], sketch.turn_gaps[2]
    return MeanField(workload, Empirical(seconds / turns, turns))


def _mean_field_stderr(sketches: list[FlowSketch], capacity: float) -> float | None:
    """Delete-one-group jackknife of the paper's estimator; few groups, since each replica is a fit of its own."""
    totals = [
        FlowSketch.total([sketches[index] for index in group], cells=False)
        for group in np.array_split(np.arange(len(sketches)), min(_PAPER_GROUPS, len(sketches)))
    ]
    replicas = []
    for index in range(len(totals)):
        without = _mean_field(FlowSketch.total(totals[:index] + totals[index + 1 :], cells=False))
        ratio = without.hit_ratio(capacity) if without is not None else None
        if ratio is not None:
            replicas.append(ratio)
    return jackknife_stderr(np.array(replicas))

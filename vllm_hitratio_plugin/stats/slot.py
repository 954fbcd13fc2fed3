"""One time slot, or a part of one: its sums, and what is expected of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vllm_hitratio_plugin.model.hit_ratio_curve import HitRatioCurve
from vllm_hitratio_plugin.model.traffic import Array, InterarrivalTable, LagTable, LengthTable, RunTable, TrafficSums
from vllm_hitratio_plugin.snapshot import FORK_DEPTHS, INTERARRIVAL_BOUNDS, Counters
from vllm_hitratio_plugin.stats.batch import Counted
from vllm_hitratio_plugin.stats.outcomes import none, outcomes_of


class Slot:
    """Additive sums of one stretch of time.

    Attributes:
        sums: What the estimators need.
        outcomes: What became of the prompts' blocks.
        shadow: Hits of exact LRUs at each capacity asked about, blocks; (k,).
        counters: What this stretch adds to the counters; hits of shadow and estimators are added when it is over.
        curve: Its runs by stack distance, as the estimator last fitted them.
        expected: Expected hits, blocks, at each capacity asked about; (k,).
    """

    __slots__ = ("counters", "curve", "expected", "outcomes", "shadow", "sums")

    def __init__(self, capacities: int) -> None:
        self.sums = TrafficSums()
        self.outcomes = none()
        self.shadow: Array = np.zeros(capacities)
        self.counters = Counters()
        self.curve = HitRatioCurve.total([])
        self.expected: Array = np.zeros(capacities)

    def add(self, counted: Counted, block_size: int, unhashed: str) -> None:
        """Count a batch of requests."""
        requests, sums, counters = counted.requests, self.sums, self.counters
        count = len(requests.tokens)
        prompt, tokens, first = float(requests.prompt.sum()), float(requests.tokens.sum()), float(requests.first.sum())
        reusable, hit_tokens = float(requests.reusable.sum()), float(requests.hit_tokens.sum())
        # Where unhashed blocks queue at the tail, they displace others like any written block.
        written = prompt if unhashed == "tail" else float(requests.full.sum())
        sums.requests += count
        sums.prompt_blocks += prompt
        sums.written_blocks += written - reusable
        sums.in_use_blocks += float(requests.in_use.sum())
        sums.first_turns += first
        sums.grown_blocks += float(requests.grown.sum())
        sums.returning_blocks += float(requests.returning.sum())
        sums.hit_blocks = (
            None if np.isnan(hit_tokens) or sums.hit_blocks is None else sums.hit_blocks + hit_tokens / block_size
        )
        sums.add(LengthTable.of(requests.tokens))
        if len(counted.reuse_times):
            sums.add(RunTable.of(counted.reuse_times, counted.run_lengths, counted.own))
        if any(counted.lags):
            sums.add(LagTable.of(counted.lags))
        self.shadow += counted.shadow
        self.outcomes += outcomes_of(requests, block_size)
        seen = float(np.nansum(requests.hit_tokens))
        counters.requests += count
        counters.prompt_blocks += int(prompt) if prompt.is_integer() else prompt
        counters.hit_blocks += seen / block_size
        counters.prompt_tokens += int(tokens)
        counters.hit_tokens += int(seen)
        counters.external_hit_tokens += int(requests.external_tokens.sum())
        counters.ceiling_hit_blocks += reusable
        counters.conversations += int(first)
        counters.short_prompts += int(requests.short.sum())
        counters.unreused_history_blocks += int(requests.unreused.sum())
        counters.forks += int(requests.forked.sum())
        counters.follow_up_turns += int((requests.unmatched >= 0).sum())
        counters.unmatched_turns += int((requests.unmatched > 0).sum())
        for depth in requests.fork_depth[requests.fork_depth >= 0]:
            deep = min(int(depth), FORK_DEPTHS)
            counters.fork_depths[deep] = counters.fork_depths.get(deep, 0) + 1
        if len(counted.interarrivals):
            sums.add(InterarrivalTable.of(counted.interarrivals))
            buckets = np.searchsorted(INTERARRIVAL_BOUNDS, counted.interarrivals)
            for bucket, turns in enumerate(np.bincount(buckets, minlength=len(INTERARRIVAL_BOUNDS) + 1)):
                counters.interarrival_buckets[bucket] += int(turns)
            counters.interarrival_seconds += float(counted.interarrivals.sum())

    @classmethod
    def total(cls, parts: Sequence[Slot]) -> Slot:
        """One slot of consecutive parts, without their counters."""
        if len(parts) == 1:
            return parts[0]
        whole = cls(0)
        whole.sums = TrafficSums.total([part.sums for part in parts])
        whole.curve = HitRatioCurve.total([part.curve for part in parts])
        whole.outcomes = np.sum([part.outcomes for part in parts], axis=0)
        whole.shadow = np.sum([part.shadow for part in parts], axis=0)
        whole.expected = np.sum([part.expected for part in parts], axis=0)
        return whole

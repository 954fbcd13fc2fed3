"""The plan for one model: today, every what-if, and all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from vllm_hitratio_plugin.planning.capacity_curve import GIB, CapacityCurve, CapacityForTarget
from vllm_hitratio_plugin.planning.change import Change
from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.subject import Subject

_HOUR = 3600.0


@dataclass(frozen=True)
class WhatIf:
    """The hit ratio under one change, and what follows from it."""

    change: Change
    demand: Demand
    """After the change."""
    capacity_blocks: float
    """N in blocks of the demand's size; of each replica."""
    block_bytes: float | None
    hit_ratio: float | None
    """ĥ(N); None where nothing is known at that capacity."""
    second_tier: float | None
    """Hits of the second tier beyond that; None without one, or where nothing is known."""
    targets: Sequence[CapacityForTarget]
    """Capacity for each target, on each replica."""
    knee: float | None
    """Blocks; see :attr:`CapacityCurve.knee`."""
    prefill_seconds_per_token: float | None

    @property
    def total(self) -> float | None:
        """Hits of both tiers."""
        return None if self.hit_ratio is None else self.hit_ratio + (self.second_tier or 0.0)

    @property
    def words(self) -> str:
        """What it is, for people."""
        several = sum(getattr(self.change, item.name) is not None for item in fields(self.change)) > 2
        return f"together: {self.change.words}" if several else self.change.words

    @property
    def replicas(self) -> int:
        """How many share the traffic."""
        return self.change.replicas or 1

    @property
    def saved_tokens_per_hour(self) -> float | None:
        """Prompt tokens per hour that no prefill has to compute: hit blocks times their size; all replicas together."""
        if self.total is None:
            return None
        sums = self.demand.sums
        blocks_per_second = sums.prompt_blocks / sums.seconds * self.replicas
        return self.total * blocks_per_second * self.demand.block_size * _HOUR

    @property
    def saved_prefill_seconds_per_hour(self) -> float | None:
        """Seconds of prefill per hour that hits save, on all replicas together; None where the speed is unknown."""
        tokens = self.saved_tokens_per_hour
        if tokens is None or self.prefill_seconds_per_token is None:
            return None
        return tokens * self.prefill_seconds_per_token

    def gib(self, blocks: float | None) -> float | None:
        """Blocks of this what-if in GiB; None where a block's bytes are unknown."""
        return None if blocks is None or self.block_bytes is None else blocks * self.block_bytes / GIB

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "change": self.words,
            "block_size": self.demand.block_size,
            "replicas": self.replicas,
            "capacity_blocks": self.capacity_blocks,
            "pinned_blocks": self.demand.in_use_blocks,
            "hit_ratio": self.hit_ratio,
            "second_tier_hit_ratio": self.second_tier,
            "knee_blocks": self.knee,
            "targets": [
                {"target": need.target, "blocks": need.blocks, "gib": self.gib(need.blocks), "reason": need.reason}
                for need in self.targets
            ],
            "saved_tokens_per_hour": self.saved_tokens_per_hour,
            "prefill_seconds_saved_per_hour": self.saved_prefill_seconds_per_hour,
        }


@dataclass(frozen=True)
class Plan:
    """One model's what-ifs."""

    subject: Subject
    today: WhatIf
    what_ifs: Sequence[WhatIf]
    """One per change; the last one all of them together, where they can be."""
    capacities: Sequence[float]
    """Other capacities asked about, blocks."""

    @cached_property
    def curve(self) -> CapacityCurve:
        """Of today's traffic."""
        return CapacityCurve(self.today.demand)

    @property
    def step_blocks(self) -> float:
        """The capacity whose gain is quoted: one GiB, or 1,000 blocks where a block's bytes are unknown."""
        return 1000.0 if self.subject.block_bytes is None else GIB / self.subject.block_bytes

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        curve, today = self.curve, self.today
        sizes, ratios = curve.points(today.capacity_blocks)
        return {
            "model": self.subject.name,
            "source": self.subject.source,
            "notes": list(self.subject.notes),
            "block_size": today.demand.block_size,
            "block_bytes": self.subject.block_bytes,
            "observed": self.subject.observed,
            "external": self.subject.external,
            "left_out_prompts": today.demand.left_out,
            "ceiling": curve.ceiling,
            "horizon_blocks": today.demand.horizon_blocks,
            "knee_blocks": today.knee,
            "knee_gib": today.gib(today.knee),
            "gain_step_blocks": self.step_blocks,
            "capacities": [
                {
                    "blocks": size,
                    "gib": today.gib(size),
                    "hit_ratio": curve.hit_ratio(size),
                    "gain_of_next_step": curve.gain(size, self.step_blocks),
                }
                for size in [today.capacity_blocks, *self.capacities]
            ],
            "curve": [{"blocks": size, "hit_ratio": ratio} for size, ratio in zip(sizes, ratios, strict=True)],
            "today": today.to_dict(),
            "what_ifs": [what_if.to_dict() for what_if in self.what_ifs],
        }


def plan(
    subject: Subject,
    changes: Sequence[Change],
    *,
    targets: Sequence[float] = (),
    capacities: Sequence[float] = (),
    prefill_seconds_per_token: float | None = None,
) -> Plan:
    """Work out every change by itself and, where no two of them are of the same kind, all together."""

    def what_if(change: Change) -> WhatIf:
        demand = change.applied(subject.demand, subject.reblock)
        scale = subject.demand.block_size / demand.block_size
        capacity = subject.capacity_blocks * scale
        curve, tier = CapacityCurve(demand), change.second_tier
        return WhatIf(
            change,
            demand,
            capacity,
            None if subject.block_bytes is None else subject.block_bytes / scale,
            curve.hit_ratio(capacity),
            None if tier is None else replace(tier, blocks=tier.blocks * scale).hit_ratio(demand, capacity),
            [curve.capacity_for(target) for target in targets],
            curve.knee,
            prefill_seconds_per_token,
        )

    everything = [what_if(change) for change in (*changes, *_together(changes))]
    return Plan(subject, what_if(Change()), everything, capacities)


def _together(changes: Sequence[Change]) -> list[Change]:
    merged: dict[str, Any] = {}
    for change in changes:
        for item in fields(change):
            value = getattr(change, item.name)
            if value == item.default or (item.name == "routing" and change.replicas is None):
                continue
            if item.name in merged:
                return []
            merged[item.name] = value
    return [Change(**merged)] if len(changes) > 1 else []

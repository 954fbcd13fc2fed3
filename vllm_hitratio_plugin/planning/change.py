"""What may change: of the traffic, of the fleet, of the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.granularity import reblocked
from vllm_hitratio_plugin.planning.load import loaded
from vllm_hitratio_plugin.planning.pinning import pinned
from vllm_hitratio_plugin.planning.routing import Routing, routed
from vllm_hitratio_plugin.planning.second_tier import SecondTier
from vllm_hitratio_plugin.planning.think_time import slowed_thinking

Reblock = Callable[[int], Demand | None]
"""The demand in blocks of another size, counted anew from the prompts; None where they can't be cut so."""


@dataclass(frozen=True)
class Change:
    """A what-if; what is None stays as it is. Several together are applied in the order of the attributes."""

    block_size: int | None = None
    """b', tokens; the memory stays, so N becomes N·b/b'."""
    load: float | None = None
    """Traffic × k."""
    think_time: float | None = None
    """Think time × k."""
    replicas: int | None = None
    """R, each with a cache of N blocks, sharing the traffic."""
    routing: Routing = "sticky"
    pinned: float | None = None
    """Mean blocks in use on one replica, of today's size."""
    second_tier: SecondTier | None = None
    """Of each replica, in blocks of today's size."""

    def applied(self, demand: Demand, reblock: Reblock | None = None) -> Demand:
        """The demand after the change; ``reblock`` is how another block size is had exactly, if at all."""
        before = demand.block_size
        if self.block_size is not None:
            exact = reblock(self.block_size) if reblock is not None else None
            demand = exact if exact is not None else reblocked(demand, self.block_size)
        if self.load is not None:
            demand = loaded(demand, self.load)
        if self.think_time is not None:
            demand = slowed_thinking(demand, self.think_time)
        if self.replicas is not None:
            demand = routed(demand, self.replicas, self.routing)
        if self.pinned is not None:
            demand = pinned(demand, self.pinned * before / demand.block_size)
        return demand

    @property
    def words(self) -> str:
        """What it is, for people."""
        said = []
        if self.block_size is not None:
            said.append(f"blocks of {self.block_size} tokens")
        if self.load is not None:
            said.append(f"traffic × {self.load:g}")
        if self.think_time is not None:
            said.append(f"think time × {self.think_time:g}")
        if self.replicas is not None:
            said.append(f"{self.replicas} replicas, {self.routing} routing")
        if self.pinned is not None:
            said.append(f"{self.pinned:g} blocks in use")
        if self.second_tier is not None:
            kind = "exclusive" if self.second_tier.exclusive else "inclusive"
            said.append(f"second tier of {self.second_tier.blocks:,.0f} blocks, {kind}")
        return ", ".join(said) or "as it is"

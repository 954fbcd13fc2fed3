"""What may change: of the traffic, of the fleet, of the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vllm_hitratio_plugin.planning.block_size import with_block_size
from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.replicas import Routing, with_replicas
from vllm_hitratio_plugin.planning.second_tier import SecondTier
from vllm_hitratio_plugin.planning.timing import with_in_use, with_load, with_think_time

Reblock = Callable[[int], Demand | None]
"""The demand in blocks of another size, counted again from the prompts; None where they can't be cut that way."""


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
    in_use: float | None = None
    """Mean blocks in use on one replica, of today's size."""
    second_tier: SecondTier | None = None
    """Of each replica, in blocks of today's size."""

    def applied(self, demand: Demand, reblock: Reblock | None = None) -> Demand:
        """The demand after the change; ``reblock`` gives another block size exactly, if anything does."""
        before = demand.block_size
        if self.block_size is not None:
            exact = reblock(self.block_size) if reblock is not None else None
            demand = exact if exact is not None else with_block_size(demand, self.block_size)
        if self.load is not None:
            demand = with_load(demand, self.load)
        if self.think_time is not None:
            demand = with_think_time(demand, self.think_time)
        if self.replicas is not None:
            demand = with_replicas(demand, self.replicas, self.routing)
        if self.in_use is not None:
            demand = with_in_use(demand, self.in_use * before / demand.block_size)
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
        if self.in_use is not None:
            said.append(f"{self.in_use:g} blocks in use")
        if self.second_tier is not None:
            kind = "exclusive" if self.second_tier.exclusive else "inclusive"
            said.append(f"second tier of {self.second_tier.blocks:,.0f} blocks, {kind}")
        return ", ".join(said) or "as it is"

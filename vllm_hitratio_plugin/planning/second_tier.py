"""A second tier of blocks behind the accelerator's: host memory, a Mooncake store."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_hitratio_plugin.planning.demand import Demand


@dataclass(frozen=True)
class SecondTier:
    """An LRU tier of its own."""

    blocks: float
    """M, blocks of the demand's size."""
    exclusive: bool = False
    """It holds only what the first tier evicted; otherwise it holds copies of what the first tier holds, too, as
    vLLM's offloading and the stores behind its connectors do."""

    def hit_ratio(self, demand: Demand, capacity: float) -> float | None:
        """Hits beyond those of a first tier of ``capacity`` blocks, as a share of the prompt blocks.

        Exclusive: hits at N + M minus those at N, because two LRU tiers with demotion are one LRU of both sizes.
        Inclusive: hits at M minus those at N, where that is more; no request uses its blocks, so blocks in use take no
        room there. None without traffic, and beyond what is known.
        """
        curve = demand.curve
        together = capacity + self.blocks if self.exclusive else max(capacity, self.blocks + demand.in_use_blocks)
        if not curve.prompt_blocks or not demand.knows(together):
            return None
        first, both = curve.hit_blocks([capacity, together])
        return float(both - first) / curve.prompt_blocks

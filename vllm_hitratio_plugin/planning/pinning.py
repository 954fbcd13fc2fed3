"""Fewer blocks in use: faster prefills, or faster transfers to the decoders."""

from dataclasses import replace

from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.runs import Runs, with_runs


def pinned(demand: Demand, blocks: float) -> Demand:
    """The same prompts with ``blocks`` blocks in use on average, because each is held for a shorter (or longer) time.

    Both effects of MODEL 4.5: room for idle blocks, and blocks that are idle for longer, by the time they are held
    less. By Little's law the holding time goes with the blocks in use.
    """
    before = demand.in_use_blocks
    earlier = demand.holding_seconds * (1 - blocks / before) if before else 0.0
    own, shared = Runs.own(demand.sums), Runs.shared(demand.sums)
    changed = with_runs(
        demand,
        *(
            runs.with_gaps((runs.gaps + earlier * (runs.gaps > 0)).clip(min=1e-9 * (runs.gaps > 0)))
            for runs in (own, shared)
        ),
    )
    return replace(changed, sums=replace(changed.sums, in_use_blocks=blocks * changed.sums.requests))

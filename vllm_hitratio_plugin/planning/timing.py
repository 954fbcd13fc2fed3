"""More or less traffic, slower or faster users, shorter or longer use of blocks: changes of rates and times alone."""

from __future__ import annotations

from dataclasses import replace

from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.runs import Runs, with_runs


def with_load(demand: Demand, factor: float) -> Demand:
    """``factor`` times as many conversations per second, each as before.

    Load equivalence (remark B.6): the hit ratio of today's traffic at N / ``factor``. The new conversations are taken
    to bring content of their own; where they share prefixes with today's, the true ratio is higher.
    """
    return demand.slower(1 / factor)


def with_think_time(demand: Demand, factor: float) -> Demand:
    """Users who take ``factor`` times as long from one prompt to their next.

    From prompt to prompt a block is in use for S and unused for the reuse time g, so g becomes ``factor``·(g + S) - S,
    at least 0. The rates of conversations and prompts stay, and so do the reuse times of prefixes that conversations
    share.
    """
    own, shared = Runs.own(demand.sums), Runs.shared(demand.sums)
    times = (factor * (own.times + demand.use_seconds) - demand.use_seconds).clip(min=0.0)
    # A block still in use when its next prompt comes is a matter of seconds; it stays a hit.
    times[own.times == 0.0] = 0.0
    return with_runs(demand, replace(own, times=times), shared)


def with_in_use(demand: Demand, blocks: float) -> Demand:
    """The same prompts with ``blocks`` blocks in use on average, because each is in use for a shorter or longer time.

    This has two effects (docs/model.md#release-clock-and-blocks-in-use): the room for unused blocks changes, and a
    block that is released earlier is unused for longer. By Little's law the time in use goes with the blocks in use.
    """
    before = demand.in_use_blocks
    earlier = demand.use_seconds * (1 - blocks / before) if before else 0.0

    def released_earlier(runs: Runs) -> Runs:
        unused = runs.times > 0
        return replace(runs, times=(runs.times + earlier * unused).clip(min=1e-9 * unused))

    changed = with_runs(demand, released_earlier(Runs.own(demand.sums)), released_earlier(Runs.shared(demand.sums)))
    return replace(changed, sums=replace(changed.sums, in_use_blocks=blocks * changed.sums.requests))

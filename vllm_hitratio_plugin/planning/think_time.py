"""Think time × k."""

from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.runs import Runs, with_runs


def slowed_thinking(demand: Demand, factor: float) -> Demand:
    """Users who take ``factor`` times as long from one prompt to their next.

    From prompt to prompt a block is held for S and idle for g, so g becomes ``factor``·(g + S) - S, at least 0. As many
    conversations start and as many prompts come a second, so the gaps of prefixes that conversations share stay.
    """
    own, shared = Runs.own(demand.sums), Runs.shared(demand.sums)
    held = demand.holding_seconds
    gaps = (factor * (own.gaps + held) - held).clip(min=0.0)
    # What is held when its next prompt comes is a matter of seconds; it stays a hit.
    gaps[own.gaps == 0.0] = 0.0
    return with_runs(demand, own.with_gaps(gaps), shared)

"""Traffic × k."""

from vllm_hitratio_plugin.planning.demand import Demand


def loaded(demand: Demand, factor: float) -> Demand:
    """``factor`` times as many conversations a second, each as before.

    Load equivalence (remark B.6): the hit ratio of today's traffic at N / ``factor``. The new conversations are taken
    to bring content of their own; where they share prefixes with today's, the true ratio is higher.
    """
    return demand.slower(1 / factor)

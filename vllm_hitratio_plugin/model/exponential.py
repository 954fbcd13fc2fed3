"""Exponential gaps in closed form, through the Lambert W function; the root finder of the mean field must agree."""

import math

from vllm_hitratio_plugin.model.workload import Workload, checked


def characteristic_time(workload: Workload, mean_gap: float, capacity_blocks: float) -> float | None:
    """T_C of (30), (38) where F is exponential with mean μ.

    With x = T_C / μ, r = a(∞) / ν and c = N / (ν μ) - r the equation d(T_C) = N reads (x - c) e^(x - c) = r e^(-c), so
    x = c + W(r e^(-c)).

    Args:
        workload: rate and means.
        mean_gap: μ, seconds, above 0.
        capacity_blocks: N, at least 0.

    Returns:
        Seconds; infinite where no new blocks are written and all that return fit; None where there is no traffic.

    Raises:
        ValueError: μ or N out of range.
    """
    mu = checked("mean_gap", mean_gap, above=0)
    n = checked("capacity_blocks", capacity_blocks, at_least=0)
    new, reusable = workload.new_block_rate, workload.reusable_block_rate
    if not new and not reusable:
        return None
    if not reusable:
        return n / new
    if not new:
        held = n / (reusable * mu)
        return -mu * math.log1p(-held) if held < 1 else math.inf
    from scipy.special import wrightomega

    ratio = reusable / new
    c = n / (new * mu) - ratio
    # ω(z) = W(e^z) does not overflow where r e^(-c) does.
    x = max(0.0, c + float(wrightomega(math.log(ratio) - c)))
    # c + ω loses digits where N is small beside a(∞) μ; one Newton step brings them back.
    x -= (x - ratio * math.expm1(-x) - n / (new * mu)) / (1 + ratio * math.exp(-x))
    return x * mu


def hit_ratio(workload: Workload, mean_gap: float, capacity_blocks: float) -> float | None:
    """ĥ = (A_H^hash / A_R) (1 - exp(-T_C / μ)) (32), (39); None where there is no traffic. Arguments as above."""
    time = characteristic_time(workload, mean_gap, capacity_blocks)
    ceiling = workload.reuse_potential
    return None if time is None or ceiling is None else -ceiling * math.expm1(-time / mean_gap)

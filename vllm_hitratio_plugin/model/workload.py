"""The workload as the mean field sees it: one rate and three means."""

import math
from dataclasses import dataclass


def checked(
    name: str, value: float, *, at_least: float = -math.inf, above: float = -math.inf, at_most: float = math.inf
) -> float:
    """``value`` as a float, or a ValueError of one sentence naming the value and what would be right."""
    number = float(value)
    # Written so that nan fails too.
    if math.isfinite(number) and number >= at_least and number > above and number <= at_most:
        return number
    wanted = ["finite"]
    wanted += [f"at least {at_least:g}"] if math.isfinite(at_least) else []
    wanted += [f"above {above:g}"] if math.isfinite(above) else []
    wanted += [f"at most {at_most:g}"] if math.isfinite(at_most) else []
    raise ValueError(f"{name} must be {' and '.join(wanted)}, got {value!r}")


@dataclass(frozen=True)
class Workload:
    """What the estimator needs to know of the conversations; equations (35)-(37) or any other estimate of them.

    The means are over whole conversations, the rate is the physical one (not the paper's rate per block of capacity).

    Raises:
        ValueError: a value is negative, not finite, or larger than the history workload it is part of.
    """

    arrival_rate: float
    """Conversation arrival rate λ0, conversations per second."""

    history_workload: float
    """A_R = E[Σ_{j≤M} R_j], prompt blocks per conversation (9), (35)."""

    reusable_workload: float
    """A_H^hash = E[Σ_{j<M} (R_j - 1)], blocks per conversation (28), (36); A_H (10) for the theoretical form."""

    lifetime_blocks: float
    """E[B] = E[R_M], blocks that a conversation writes over its life (1), (37)."""

    turns: float | None = None
    """E[M], turns per conversation (37); the estimator does not need it."""

    def __post_init__(self) -> None:
        checked("arrival_rate", self.arrival_rate, at_least=0)
        checked("history_workload", self.history_workload, at_least=0)
        # Both are sums of parts of the same prompts; the allowance is for means that were rounded.
        part = self.history_workload * (1 + 1e-9)
        checked("reusable_workload (a part of history_workload)", self.reusable_workload, at_least=0, at_most=part)
        checked("lifetime_blocks (a part of history_workload)", self.lifetime_blocks, at_least=0, at_most=part)
        if self.turns is not None:
            checked("turns", self.turns, at_least=1)

    @property
    def new_block_rate(self) -> float:
        """ν = λ0 E[B], newly written blocks per second; the floor of d' and the paper's c_d and m_prac."""
        return self.arrival_rate * self.lifetime_blocks

    @property
    def reusable_block_rate(self) -> float:
        """a(∞) = λ0 A_H^hash, reusable blocks of returning prompts per second."""
        return self.arrival_rate * self.reusable_workload

    @property
    def reuse_potential(self) -> float | None:
        """A_H^hash / A_R, the hit ratio no capacity exceeds (11), (32); None where there are no prompt blocks."""
        return min(1.0, self.reusable_workload / self.history_workload) if self.history_workload else None

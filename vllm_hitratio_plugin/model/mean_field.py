"""The paper's estimator: displacement curve, characteristic time, hit ratio, and the capacity a target needs."""

import math
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.interarrival import Empirical, Exponential, Interarrival, T
from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.model.workload import Workload, checked


@dataclass(frozen=True)
class CapacityAnswer:
    """What a target hit ratio needs: blocks, or the reason why no number of blocks is enough."""

    blocks: float | None
    """N*, blocks (round up); None where the target is out of reach."""
    reason: str | None = None
    """One sentence; None where there is an answer."""
    characteristic_time: float | None = None
    """T*, seconds a block must survive to reach the target; None where the target is out of reach."""


class MeanField:
    """The mean-field estimator (29)-(32), (38)-(39), with the physical arrival rate, so that the threshold is N, not 1.

    Given ``Workload.reusable_workload`` = A_H instead of A_H^hash it is the theoretical form (15), (21), (25).

    Guarantee: for an :class:`Empirical` F, ``hit_ratio(capacity_for(h).blocks) >= h`` exactly; for the others both
    directions agree to rounding. Empirical and exponential laws have closed forms, the others need a root finder.

    Example:
        >>> field = MeanField(Workload(1.5, 38.9092, 22.5178, 12.922), Exponential(135.0))
        >>> round(field.hit_ratio(2275), 6), round(field.characteristic_time(2275), 4)
        (0.171784, 47.5413)
    """

    def __init__(self, workload: Workload, interarrival: Interarrival) -> None:
        self.workload = workload
        self.interarrival = interarrival
        self._displaced: Array | None = None
        if isinstance(interarrival, Empirical):
            # d is linear between the measured times: its values there are all there is to know, and to invert.
            self._displaced = self._curve(interarrival.knots, interarrival.integrals)

    @property
    def reuse_potential(self) -> float | None:
        """A_H^hash / A_R: the hit ratio no capacity exceeds (11), (32); None without traffic."""
        return self.workload.reuse_potential if self.workload.arrival_rate else None

    def _curve(self, t: T, integral: T) -> T:
        return self.workload.new_block_rate * t + self.workload.reusable_block_rate * integral

    def displacement(self, t: T) -> T:
        """d(t) = λ0 E[B] t + λ0 A_H^hash ∫_0^t (1 - F), blocks, for t ≥ 0 in seconds, any shape (2), (15), (29)."""
        return self._curve(t, self.interarrival.tail_integral(t))

    def displacement_rate(self, t: T) -> T:
        """d'(t) = λ0 E[B] + λ0 A_H^hash (1 - F(t)), blocks per second, for t ≥ 0 in seconds, any shape."""
        return self.workload.new_block_rate + self.workload.reusable_block_rate * (1.0 - self.interarrival.cdf(t))

    def characteristic_time(self, capacity_blocks: float) -> float | None:
        """T_C with d(T_C) = N, seconds (21), (30), (38): how long an unused block stays cached.

        Returns:
            Seconds; infinite where nothing displaces an unused block, because no new blocks are written and all that
            return fit; None only where there is no traffic.

        Raises:
            ValueError: ``capacity_blocks`` is negative or not finite.
        """
        n = checked("capacity_blocks", capacity_blocks, at_least=0)
        new, reusable = self.workload.new_block_rate, self.workload.reusable_block_rate
        if not new and not reusable:
            return None
        if not n:
            return 0.0
        if not reusable:
            return n / new
        if isinstance(self.interarrival, Exponential):
            return exponential_time(new, reusable, self.interarrival.mean, n)
        if self._displaced is not None:
            assert isinstance(self.interarrival, Empirical)
            beyond = n - float(self._displaced[-1])
            if beyond > 0:
                return float(self.interarrival.knots[-1]) + beyond / new if new else math.inf
            # At a knot interp returns the knot itself, to the last bit: what makes the inverse consistent.
            return float(np.interp(n, self._displaced, self.interarrival.knots))
        return self._root(n, new, reusable)

    def _root(self, n: float, new: float, reusable: float) -> float:
        from scipy.optimize import brentq

        if not new and n >= reusable * self.interarrival.mean:
            return math.inf
        # ν t ≤ d(t) ≤ (ν + a) t brackets the root; the margins are for rounding.
        low = n / (new + reusable) * (1 - 1e-9)
        high = n / new * (1 + 1e-9) if new else low
        while self.displacement(high) < n:
            high *= 2
        precision = 4 * float(np.finfo(float).eps)
        absolute = max(low * precision, 1e-300)  # must not underflow to 0
        return float(brentq(lambda t: self.displacement(t) - n, low, high, xtol=absolute, rtol=precision, maxiter=1000))

    def hit_ratio(self, capacity_blocks: float) -> float | None:
        """ĥ = (A_H^hash / A_R) F(T_C), in [0, reuse_potential] (25), (32), (39); None where there is no traffic.

        Raises:
            ValueError: ``capacity_blocks`` is negative or not finite.
        """
        time = self.characteristic_time(capacity_blocks)
        ceiling = self.reuse_potential
        return None if time is None or ceiling is None else ceiling * self.interarrival.cdf(time)

    def capacity_for(self, target: float) -> CapacityAnswer:
        """The least capacity whose hit ratio is ``target``, in closed form.

        T* = F^{-1}(target · A_R / A_H^hash), N* = d(T*); never a number where the target is out of reach.

        Raises:
            ValueError: ``target`` is not between 0 and 1.
        """
        target = checked("target (a hit ratio, not a percentage)", target, at_least=0, at_most=1)
        ceiling = self.reuse_potential
        if ceiling is None:
            return CapacityAnswer(None, "No traffic: a hit ratio is not defined.")
        if target == 0:
            return CapacityAnswer(0.0, characteristic_time=0.0)
        if target > ceiling:
            return CapacityAnswer(
                None, f"The target {target:g} is above the reuse potential {ceiling:.6g}: no capacity reaches it."
            )
        if self._displaced is not None:
            assert isinstance(self.interarrival, Empirical)
            # Compared as hit_ratio computes it, so that rounding in target / ceiling cannot lose a step of F.
            step = int(np.searchsorted(ceiling * self.interarrival.cumulative, target, side="left"))
            return CapacityAnswer(
                float(self._displaced[step + 1]), characteristic_time=float(self.interarrival.times[step])
            )
        time = self.interarrival.quantile(min(1.0, target / ceiling))
        if math.isinf(time):
            return CapacityAnswer(
                None, f"The target {target:g} is the reuse potential itself: only an unlimited capacity reaches it."
            )
        return CapacityAnswer(self.displacement(time), characteristic_time=time)


def exponential_time(new: float, reusable: float, mean: float, capacity_blocks: float) -> float:
    """T_C of (30), (38) where F is exponential, through the Lambert W function.

    With x = T_C / μ, r = a(∞) / ν and c = N / (ν μ) - r the equation d(T_C) = N reads (x - c) e^(x - c) = r e^(-c), so
    x = c + W(r e^(-c)).

    Args:
        new: ν, blocks per second.
        reusable: a(∞), blocks per second, above 0.
        mean: μ, seconds, above 0.
        capacity_blocks: N, above 0.

    Returns:
        Seconds; infinite where ν = 0 and all that return fit.
    """
    if not new:
        share = capacity_blocks / (reusable * mean)
        return -mean * math.log1p(-share) if share < 1 else math.inf
    from scipy.special import wrightomega

    ratio = reusable / new
    scaled = capacity_blocks / (new * mean)
    c = scaled - ratio
    # ω(z) = W(e^z) does not overflow where r e^(-c) does.
    x = max(0.0, c + float(wrightomega(math.log(ratio) - c)))
    # c + ω loses digits where N is small compared with a(∞) μ; one Newton step brings them back.
    x -= (x - ratio * math.expm1(-x) - scaled) / (1 + ratio * math.exp(-x))
    return x * mean

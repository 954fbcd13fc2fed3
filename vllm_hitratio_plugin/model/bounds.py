"""How far a finite cache may be from its mean field: (16), (17), (22), (26), (33) (docs/model.md#finite-n-bounds).

Scaling. In the paper the traffic grows with the cache: the system of size N has the arrival rate λ0^(N) = N λ0. A real
system has one capacity N and one physical rate Λ, so the paper's rate is λ0 = Λ / N, its d is our d / N, and ε in (16),
(17) is a share of the cache. Times (T_C, T, and ε in (22), (26), (33)) are seconds in both. "Larger N" in the theorems
is therefore a larger cache with proportionally more traffic: compare ``FiniteBounds`` at (k N, k Λ), not at (k N, Λ).

The law of the conversations is the sample's own (plug-in), so its moment generating function is finite at every θ. The
bounds are proofs of a rate, not error bars: at the sizes of real caches most of them are vacuous, and say so.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vllm_hitratio_plugin.model.conversation_sample import ConversationSample
from vllm_hitratio_plugin.model.interarrival import Interarrival
from vllm_hitratio_plugin.model.mean_field import MeanField
from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.model.workload import checked


@dataclass(frozen=True)
class Bound:
    """One bound, at the best free parameters found; a parameter the bound does not have is None."""

    equation: int
    """The paper's number."""
    value: float
    """The bound on a probability or on a difference of hit ratios; may exceed 1, or be infinite."""
    reason: str | None = None
    """Why it is infinite or trivially 0, one sentence."""
    epsilon: float | None = None
    """ε: share of the cache in (16), (17); seconds in the others."""
    time: float | None = None
    """t or T, seconds."""
    turn: int | None = None
    """j or J."""
    theta: float | None = None
    """θ of the term with E[e^{θB}], 1/blocks."""
    tail_theta: float | None = None
    """θ of the last term of (26), (33), 1/blocks (lemmas D.5 and D.8 each hold for any θ)."""
    terms: tuple[float, ...] = ()
    """The summands of ``value``, in the paper's order: they tell what makes a bound loose."""

    @property
    def vacuous(self) -> bool:
        """Says nothing: neither a probability nor a difference of hit ratios exceeds 1."""
        return not self.value <= 1


class FiniteBounds:
    """The bounds for one system of finite size.

    Args:
        sample: the conversations.
        interarrival: F; (26) and (33) need a Lipschitz one, so not an empirical one.
        arrival_rate: Λ = λ0^(N), physical, conversations per second, above 0.
        capacity_blocks: N, blocks, at least 1.
        hashable: the practical model (A_H^hash, (33)), or the theoretical one (A_H, (26)).

    Raises:
        ValueError: rate or capacity out of range.
    """

    def __init__(
        self,
        sample: ConversationSample,
        interarrival: Interarrival,
        arrival_rate: float,
        capacity_blocks: float,
        *,
        hashable: bool = True,
    ) -> None:
        rate = checked("arrival_rate", arrival_rate, above=0)
        self.capacity_blocks = checked("capacity_blocks", capacity_blocks, at_least=1)
        self.sample = sample
        self.interarrival = interarrival
        self.hashable = hashable
        workload = sample.workload(rate, hashable=hashable)
        time = MeanField(workload, interarrival).characteristic_time(self.capacity_blocks)
        assert time is not None  # every conversation writes a block, and they arrive
        self.characteristic_time: float = time
        """T_C, seconds (21), (30)."""
        self.unit_rate: float = rate / self.capacity_blocks
        """λ0 = Λ / N, the paper's rate, conversations per second and block of capacity."""
        self.drift: float = self.unit_rate * workload.lifetime_blocks
        """c_d = m_prac = λ0 E[B], shares of the cache per second."""
        self.slope: float = self.unit_rate * (workload.lifetime_blocks + workload.reusable_workload)
        """L = sup d' = λ0 (E[B] + A_H), shares of the cache per second."""
        self.second_moment: float = float(np.mean(sample.lifetimes**2))
        """E[B²], blocks²."""
        self.turns_second_moment: float = float(np.mean((sample.lengths - 1) * sample.lifetimes**2))
        """E[(M - 1) B²], blocks²."""
        lifetimes, counts = np.unique(sample.lifetimes, return_counts=True)
        # A grid of θ is a sensible search: every θ gives a valid bound, and the optimum is flat. It ends where e^{θB}
        # would overflow; the term is long 0 there.
        self._theta: Array = np.geomspace(1e-3, 700, 400) / lifetimes[-1]
        self._log_mgf: Array = _log_mean_exp(self._theta, lifetimes, np.log(counts / counts.sum()))
        self._log_tail: Array = _log_mean_exp(
            self._theta, lifetimes, np.log(counts / counts.sum()) + 2 * np.log(lifetimes)
        )

    def variance(self, time: float) -> float:
        """V_T = λ0 T E[B²] + λ0 μ_W E[(M-1) B²] (42), blocks: N · Var(D_N(t) / N) ≤ V_T for t ≤ T seconds."""
        time = checked("time", time, at_least=0)
        return self.unit_rate * (time * self.second_moment + self.interarrival.mean * self.turns_second_moment)

    def all(self, share: float = 0.1) -> dict[str, Bound]:
        """Every bound, on deviations of more than ``share`` of N, or of T_C, within T_C."""
        time = self.characteristic_time
        return {
            "displacement": self.displacement(time, share),
            "displacement_path": self.displacement_path(time, share),
            "eviction_time": self.eviction_time(1, share * time),
            "hit_ratio": self.hit_ratio(),
            "hit_ratio_exact_tail": self.hit_ratio(tail="exact"),
        }

    def displacement(self, time: float, epsilon: float) -> Bound:
        """(16), (67): P(|D_N(t)/N - d(t)| > ε) ≤ V_t / (N ε²), at ``time`` t in seconds; ε a share of the cache.

        Raises:
            ValueError: t < 0 or ε ≤ 0.
        """
        epsilon = checked("epsilon", epsilon, above=0)
        value = self.variance(time) / (self.capacity_blocks * epsilon**2)  # T = t, the least that is allowed
        return Bound(16, value, epsilon=epsilon, time=time, terms=(value,))

    def displacement_path(self, time: float, epsilon: float) -> Bound:
        """(17): P(sup_{t≤T} |D_N(t)/N - d(t)| > ε) ≤ C_T / (N ε³), C_T = (16 V_T / 9)(2 + 4 L T); 0 < ε ≤ 1.

        Raises:
            ValueError: T < 0 or ε outside (0, 1].
        """
        epsilon = checked("epsilon", epsilon, above=0, at_most=1)
        constant = 16 * self.variance(time) / 9 * (2 + 4 * self.slope * time)
        value = constant / (self.capacity_blocks * epsilon**3)
        return Bound(17, value, epsilon=epsilon, time=time, terms=(value,))

    def eviction_time(self, turn: int, epsilon: float) -> Bound:
        """(22), (71): P(|τ_C(j) - T_C| > ε) ≤ p_{N,j}(ε), at the best θ and T; ε in seconds, 0 < ε < T_C.

        Raises:
            ValueError: no conversation reaches turn j, or ε outside (0, T_C).
        """
        survival = self.sample.survival
        if not 1 <= turn <= len(survival):
            raise ValueError(f"turn must be one that a conversation reaches, 1 to {len(survival)}, got {turn!r}")
        epsilon = checked("epsilon", epsilon, above=0)
        if epsilon >= self.characteristic_time:
            raise ValueError(
                f"epsilon must be below the characteristic time of {self.characteristic_time:g} s, got {epsilon!r}"
            )
        spread, size, theta = self._concentration(np.array([epsilon]))
        terms = (float(spread[0]), float(size[0] / survival[turn - 1]))
        time = self.characteristic_time + epsilon
        return Bound(22, sum(terms), epsilon=epsilon, time=time, turn=turn, theta=float(theta[0]), terms=terms)

    def hit_ratio(self, *, tail: Literal["moment", "exact"] = "moment") -> Bound:
        """(26), or (33) for the practical model: |h^(N) - h^(∞)| at the best ε, J, θ and T.

        Args:
            tail: the last term, 2 T_J / A_R, as the theorem bounds it, through E[B² e^{θB}]; or exactly, as the proof
                has it before that step (58), (76). Lifetimes are longer in blocks than in turns, so the theorem's
                term hardly ever falls below 1; with the exact one the bound does go to 0 as N grows.
        """
        equation = 33 if self.hashable else 26
        survival = self.sample.survival
        reusable = np.cumsum(self.sample.reusable_by_turn(hashable=self.hashable))[:-1]  # A_H^(J), J = 1..max M - 1
        if not reusable.size:
            return Bound(equation, 0.0, reason="No conversation has a second turn: both hit ratios are 0.")
        if math.isinf(self.interarrival.lipschitz):
            return Bound(equation, math.inf, reason="F has no Lipschitz constant, which the theorem needs.")
        if tail == "moment" and np.any(self.sample.lengths > self.sample.lifetimes):
            return Bound(
                equation, math.inf, reason="A conversation has more turns than blocks, against the theorem's Z_j ≥ 1."
            )
        total = self.sample.history_workload
        levels = np.arange(1, reusable.size + 1)
        roots = np.cumsum(self.sample.root_second_moment_by_turn(hashable=self.hashable))[:-1]  # K_J
        # T > T_C + ε may be arbitrarily close to it, and V_T is continuous in T: it is taken there.
        epsilon = self.characteristic_time * np.geomspace(1e-6, 1 - 1e-9, 600)
        spread, size, theta = self._concentration(epsilon)
        smooth = self.interarrival.lipschitz * np.multiply.outer(epsilon, reusable) / total
        concentrated = roots / total * np.sqrt(spread[:, None] + size[:, None] / survival[: reusable.size])
        tail_theta: Array | None = None
        if tail == "exact":
            rest = (reusable[-1] - reusable) / total
        else:
            exponents = self._log_tail[:, None] - np.multiply.outer(self._theta, levels + 2)
            best = np.argmin(exponents, axis=0)
            tail_theta = self._theta[best]
            rest = np.exp(exponents[best, np.arange(reusable.size)]) / total
        values = smooth + concentrated + 2 * rest
        at, level = np.unravel_index(int(np.argmin(values)), values.shape)
        terms = (float(smooth[at, level]), float(concentrated[at, level]), float(2 * rest[level]))
        return Bound(
            equation,
            sum(terms),
            epsilon=float(epsilon[at]),
            time=self.characteristic_time + float(epsilon[at]),
            turn=int(level) + 1,
            theta=float(theta[at]),
            tail_theta=None if tail_theta is None else float(tail_theta[level]),
            terms=terms,
        )

    def _concentration(self, epsilon: Array) -> tuple[Array, Array, Array]:
        """The parts of p_{N,j}(ε) (22): 18 V_T / (N c_d² ε²), min_θ E[e^{θB}] e^{-θ c_d N ε / 3}, and that θ.

        The second is still to be divided by S_j. ``epsilon`` in seconds, all shapes (n,).
        """
        variance = np.array([self.variance(self.characteristic_time + e) for e in epsilon])
        spread = 18 * variance / (self.capacity_blocks * (self.drift * epsilon) ** 2)
        blocks = self.drift * self.capacity_blocks * epsilon / 3
        exponents = self._log_mgf[:, None] - np.multiply.outer(self._theta, blocks)
        best = np.argmin(exponents, axis=0)
        return spread, np.exp(exponents[best, np.arange(len(epsilon))]), self._theta[best]


def _log_mean_exp(theta: Array, values: Array, log_weights: Array) -> Array:
    """log Σ exp(log_weights + θ · values), shape (len(theta),), without overflow."""
    exponents = log_weights + np.multiply.outer(theta, values)
    top = exponents.max(axis=1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)))

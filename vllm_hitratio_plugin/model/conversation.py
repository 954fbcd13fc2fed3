"""The multi-turn conversation model (MCM, B.2): what a conversation asks of the cache, turn by turn.

Turn j sends a prompt of R_j = Z_1 + ... + Z_j blocks: all the history and the new message (4). Three views of it give
the same means: a law of turns with mean increments, the paper's special case in closed form, a sample of conversations.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_hitratio_plugin.model.interarrival import Array
from vllm_hitratio_plugin.model.workload import Workload, checked


def history_sizes(prompt_blocks: Sequence[int], response_blocks: Sequence[int]) -> list[int]:
    """R_1..R_M (4), blocks, from X_1..X_M and Y_1..Y_{M-1} (a last response Y_M writes nothing more and is ignored).

    Raises:
        ValueError: too few or too many responses.
    """
    turns = len(prompt_blocks)
    if len(response_blocks) not in (turns - 1, turns):
        raise ValueError(
            f"response_blocks must be {turns - 1} or {turns} for {turns} prompts, got {len(response_blocks)}"
        )
    sizes, total = [], 0
    for turn, prompt in enumerate(prompt_blocks):
        total += prompt + (response_blocks[turn - 1] if turn else 0)
        sizes.append(total)
    return sizes


class Conversations(ABC):
    """The means of a conversation model; blocks and turns per conversation."""

    @property
    @abstractmethod
    def history_workload(self) -> float:
        """A_R = E[Σ_{j≤M} R_j] (9), (35)."""

    @property
    @abstractmethod
    def reusable_workload(self) -> float:
        """A_H = E[Σ_{j<M} R_j] (10)."""

    @property
    @abstractmethod
    def lifetime_blocks(self) -> float:
        """E[B] = E[R_M] (1), (5), (37)."""

    @property
    @abstractmethod
    def turns(self) -> float:
        """E[M] (37)."""

    @property
    def hashable_workload(self) -> float:
        """A_H^hash = A_H - E[M - 1]: one partly filled block less a returning turn (28), (36)."""
        return self.reusable_workload - (self.turns - 1)

    @property
    def reuse_potential(self) -> float:
        """h_max = A_H / A_R (11)."""
        return self.reusable_workload / self.history_workload

    def workload(self, arrival_rate: float, *, hashable: bool = True) -> Workload:
        """What the estimator takes, for λ0 conversations a second: the practical form, or the theoretical one (A_H)."""
        # Zero up to rounding where nothing returns.
        reusable = max(0.0, self.hashable_workload) if hashable else self.reusable_workload
        return Workload(arrival_rate, self.history_workload, reusable, self.lifetime_blocks, self.turns)


class MultiTurnModel(Conversations):
    """The MCM with a general law of M and block increments independent of M (assumption B.2).

    Increments of different turns may depend on each other in any way: only their means enter (7)-(11).

    Args:
        turn_probabilities: P(M = j) for j = 1..J, shape (J,), sums to 1.
        mean_increments: E[Z_j] for j = 1..J, blocks, shape (J,), each at least 1.

    Raises:
        ValueError: shapes differ, the probabilities are none, or an increment is below one block.
    """

    def __init__(self, turn_probabilities: npt.ArrayLike, mean_increments: npt.ArrayLike) -> None:
        pmf = np.asarray(turn_probabilities, dtype=np.float64)
        increments = np.asarray(mean_increments, dtype=np.float64)
        if pmf.ndim != 1 or pmf.shape != increments.shape or not pmf.size:
            raise ValueError(
                f"turn_probabilities and mean_increments must be two sequences of one length, got shapes {pmf.shape} "
                f"and {increments.shape}"
            )
        if not (pmf.min() >= 0 and abs(pmf.sum() - 1) < 1e-9):
            raise ValueError(
                f"turn_probabilities must be at least 0 and sum to 1, got a least of {pmf.min():g} and a sum of "
                f"{pmf.sum():g}"
            )
        if not (increments.min() >= 1 and np.isfinite(increments).all()):
            raise ValueError(f"mean_increments must be finite and at least 1 block a turn, got {increments.min():g}")
        self.survival: Array = np.cumsum(pmf[::-1])[::-1]
        """S_j = P(M ≥ j), j = 1..J (7), shape (J,)."""
        self.mean_history: Array = np.cumsum(increments)
        """R̄_j = E[R_j], j = 1..J, blocks, shape (J,)."""
        self._increments = increments

    @property
    def continuation(self) -> Array:
        """p_j = S_{j+1} / S_j, j = 1..J (8), shape (J,); nan where S_j = 0."""
        following = np.append(self.survival[1:], 0.0)
        with np.errstate(invalid="ignore"):
            return np.asarray(following / self.survival)

    @property
    def history_workload(self) -> float:
        """A_R = Σ S_j R̄_j (9)."""
        return float(self.survival @ self.mean_history)

    @property
    def reusable_workload(self) -> float:
        """A_H = Σ S_{j+1} R̄_j (10)."""
        return float(self.survival[1:] @ self.mean_history[:-1])

    @property
    def lifetime_blocks(self) -> float:
        """E[B] = Σ S_j E[Z_j] (46)."""
        return float(self.survival @ self._increments)

    @property
    def turns(self) -> float:
        """E[M] = Σ S_j."""
        return float(self.survival.sum())


@dataclass(frozen=True)
class StochasticModel(Conversations):
    """The SCM (B.2): geometric turns, i.i.d. blocks with constant means. The gaps are exponential beside it.

    Raises:
        ValueError: the continuation is no probability below 1, or the means give less than one block a turn.
    """

    continuation: float
    """p, probability that a completed turn is followed by another, in [0, 1)."""
    prompt_blocks: float
    """k = E[X_j], blocks, at least 1 (Z_1 = X_1)."""
    response_blocks: float
    """m = E[Y_j], blocks, at least 0."""

    def __post_init__(self) -> None:
        if not 0 <= self.continuation < 1:
            raise ValueError(f"continuation must be a probability of at least 0 and below 1, got {self.continuation!r}")
        checked("prompt_blocks", self.prompt_blocks, at_least=1)
        checked("response_blocks", self.response_blocks, at_least=0)

    @property
    def history_workload(self) -> float:
        """A_R = (k + p m) / q², q = 1 - p."""
        return (self.prompt_blocks + self.continuation * self.response_blocks) / (1 - self.continuation) ** 2

    @property
    def reusable_workload(self) -> float:
        """A_H = p (k + p m) / q², so that h_max = p."""
        return self.continuation * self.history_workload

    @property
    def lifetime_blocks(self) -> float:
        """E[B] = (k + p m) / q."""
        return (1 - self.continuation) * self.history_workload

    @property
    def turns(self) -> float:
        """E[M] = 1 / q."""
        return 1 / (1 - self.continuation)

    def truncated(self, turns: int) -> MultiTurnModel:
        """The same with M cut at ``turns`` turns: R̄_j = j k + (j - 1) m, S_j = p^(j-1) up to there."""
        before = np.arange(checked("turns", turns, at_least=1))
        pmf = (1 - self.continuation) * self.continuation**before
        pmf[-1] = self.continuation ** before[-1]
        increments = np.full(len(before), self.prompt_blocks + self.response_blocks)
        increments[0] = self.prompt_blocks
        return MultiTurnModel(pmf, increments)


class ConversationSample(Conversations):
    """L whole conversations, taken as the law itself (plug-in): (35)-(37), and the moments the bounds need.

    No independence is assumed: where (9) and (10) use S_j R̄_j, sums over the conversations themselves are taken.

    Args:
        histories: R_{i,1}..R_{i,M_i} of each conversation, blocks, at least 1 and not decreasing; L ≥ 1.

    Raises:
        ValueError: no conversations, an empty one, or sizes that are none; names the conversation (from 1).
    """

    def __init__(self, histories: Sequence[Sequence[float]]) -> None:
        if not len(histories):
            raise ValueError("histories must hold at least one conversation, got none")
        self.lengths: npt.NDArray[np.int64] = np.array([len(history) for history in histories])
        """M_i, turns, shape (L,)."""
        if not self.lengths.all():
            raise ValueError(f"conversation {int(np.argmin(self.lengths)) + 1} has no turns, at least one is needed")
        last = np.cumsum(self.lengths) - 1
        owner = np.repeat(np.arange(len(histories)), self.lengths)
        turn = np.arange(owner.size) - (last - self.lengths + 1)[owner]
        sizes = np.concatenate([np.asarray(history, dtype=np.float64) for history in histories])
        wrong = ~((sizes >= 1) & np.isfinite(sizes))
        wrong[1:] |= (turn[1:] > 0) & (sizes[1:] < sizes[:-1])
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(
                f"history sizes must be at least 1 block and never decrease within a conversation, got {sizes[at]:g} "
                f"at turn {turn[at] + 1} of conversation {owner[at] + 1}"
            )
        self.lifetimes: Array = sizes[last]
        """B_i = R_{i,M_i}, blocks, shape (L,)."""
        self.sizes: Array = sizes
        """R_{i,j}, conversation after conversation, blocks, shape (Σ M_i,)."""
        self._turn = turn
        self._returns = np.ones(sizes.size, dtype=bool)
        self._returns[last] = False

    def _per_turn(self, values: npt.NDArray[np.generic], chosen: npt.NDArray[np.bool_]) -> Array:
        """(1/L) Σ over the chosen turns, by turn index, shape (max M,)."""
        sums = np.bincount(self._turn[chosen], values[chosen], minlength=int(self.lengths.max()))
        return np.asarray(sums / len(self.lengths))

    @property
    def survival(self) -> Array:
        """S_j, j = 1..max M (7), shape (max M,)."""
        return self._per_turn(np.ones(self.sizes.size), np.ones(self.sizes.size, dtype=bool))

    @property
    def continuation(self) -> Array:
        """p_j = S_{j+1} / S_j, j = 1..max M (8), shape (max M,); the last is 0."""
        survival = self.survival
        return np.append(survival[1:], 0.0) / survival

    @property
    def mean_history(self) -> Array:
        """Mean R_j of the conversations that reach turn j, blocks, shape (max M,): R̄_j where B.2 holds."""
        return self._per_turn(self.sizes, np.ones(self.sizes.size, dtype=bool)) / self.survival

    @property
    def history_workload(self) -> float:
        """Â_R (35)."""
        return float(self.sizes.sum() / len(self.lengths))

    @property
    def reusable_workload(self) -> float:
        """Â_H: (36) with the partly filled blocks counted."""
        return float(self.sizes[self._returns].sum() / len(self.lengths))

    @property
    def lifetime_blocks(self) -> float:
        """Ê[B] (37)."""
        return float(self.lifetimes.mean())

    @property
    def turns(self) -> float:
        """Ê[M] (37)."""
        return float(self.lengths.mean())

    def reusable_by_turn(self, *, hashable: bool = False) -> Array:
        """S_{j+1} E[R_j], or S_{j+1} E[R_j - 1], j = 1..max M, blocks: the terms of (10), (28), (57), (74)."""
        return self._per_turn(self.sizes - float(hashable), self._returns)

    def root_second_moment_by_turn(self, *, hashable: bool = False) -> Array:
        """S_{j+1} √E[R_j²], or with R_j - 1, j = 1..max M, blocks: the terms of K_J (59), (75)."""
        second = self._per_turn((self.sizes - float(hashable)) ** 2, self._returns)
        return np.asarray(np.sqrt(np.append(self.survival[1:], 0.0) * second))

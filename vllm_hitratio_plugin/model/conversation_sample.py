"""A sample of whole conversations (B.2): what each asks of the cache, turn by turn.

Turn j sends a prompt of R_j = Z_1 + ... + Z_j blocks: the whole history and the new message (4).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.model.workload import Workload


class ConversationSample:
    """L whole conversations, taken as the law itself (plug-in): (35)-(37), and the moments that the bounds need.

    No independence is assumed: where (9) and (10) use S_j R̄_j, sums over the conversations themselves are taken.

    Args:
        histories: R_{i,1}..R_{i,M_i} of each conversation, blocks, at least 1 and not decreasing; L ≥ 1.

    Raises:
        ValueError: no conversations, an empty one, or sizes out of range; names the conversation (from 1).

    Example:
        >>> sample = ConversationSample([[2, 8, 16]])  # the paper's worked example
        >>> sample.history_workload, sample.reusable_workload, sample.lifetime_blocks, sample.turns
        (26.0, 10.0, 16.0, 3.0)
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

    def workload(self, arrival_rate: float, *, hashable: bool = True) -> Workload:
        """What the estimator takes, for λ0 conversations per second.

        The practical form leaves out one partly filled block per returning turn: A_H^hash = A_H - E[M - 1] (28), (36).
        The theoretical one (``hashable=False``) takes A_H.
        """
        # Zero up to rounding where nothing returns.
        reusable = max(0.0, self.reusable_workload - (self.turns - 1)) if hashable else self.reusable_workload
        return Workload(arrival_rate, self.history_workload, reusable, self.lifetime_blocks, self.turns)

    @property
    def survival(self) -> Array:
        """S_j = P(M ≥ j), j = 1..max M (7), shape (max M,)."""
        return self._per_turn(np.ones(self.sizes.size), np.ones(self.sizes.size, dtype=bool))

    def reusable_by_turn(self, *, hashable: bool = False) -> Array:
        """S_{j+1} E[R_j], or S_{j+1} E[R_j - 1], j = 1..max M, blocks: the terms of (10), (28), (57), (74)."""
        return self._per_turn(self.sizes - float(hashable), self._returns)

    def root_second_moment_by_turn(self, *, hashable: bool = False) -> Array:
        """S_{j+1} √E[R_j²], or with R_j - 1, j = 1..max M, blocks: the terms of K_J (59), (75)."""
        second = self._per_turn((self.sizes - float(hashable)) ** 2, self._returns)
        return np.asarray(np.sqrt(np.append(self.survival[1:], 0.0) * second))

    def _per_turn(self, values: npt.NDArray[np.generic], chosen: npt.NDArray[np.bool_]) -> Array:
        """(1/L) Σ over the chosen turns, by turn index, shape (max M,)."""
        sums = np.bincount(self._turn[chosen], values[chosen], minlength=int(self.lengths.max()))
        return np.asarray(sums / len(self.lengths))

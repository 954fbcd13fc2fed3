"""What the traffic asks of a cache, whatever cache it meets: the input of every what-if."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vllm_hitratio_plugin.model.hit_ratio_curve import HitRatioCurve
from vllm_hitratio_plugin.model.reuse_time import ReuseTimeModel
from vllm_hitratio_plugin.model.traffic import TrafficSums

_GAP_WIDTH = 0.06
_SPREAD = 6


@dataclass(frozen=True)
class Demand:
    """A stretch of traffic as one cache sees it.

    A what-if is a function from one demand to another: it changes rates, gaps or lengths in the sums, and the
    estimator (MODEL section 3) does the rest. So changes compose, and each is a few lines.
    """

    sums: TrafficSums
    """Sums over the stretch; blocks of ``block_size`` tokens."""
    block_size: int
    unhashed: str
    """"tail" or "head": where a partly filled block goes when its request ends (MODEL 4.2)."""
    horizon_blocks: float | None = None
    """Capacity beyond which nothing is known, since reuse of older blocks was not remembered; None: all is known."""
    left_out: int = 0
    """Prompts that the cache watched never admitted: the sums knows nothing of them, a larger cache would."""

    @property
    def flow(self) -> ReuseTimeModel:
        """The estimator on this traffic."""
        return ReuseTimeModel(self.sums)

    @property
    def fit(self) -> HitRatioCurve:
        """Hits at any capacity.

        The sums knows gaps to some per cent only; each of its cells is spread over that width, or the curve would be
        a staircase and its slope noise.
        """
        fit = self.flow.curve
        spread = 1 + _GAP_WIDTH * (np.arange(_SPREAD) - (_SPREAD - 1) / 2) / _SPREAD
        idle = fit.distances - fit.least_capacity
        ahead = np.where(fit.distances < 0, fit.distances, fit.least_capacity + spread[:, None] * idle)
        return replace(
            fit,
            runs=np.tile(fit.runs / _SPREAD, _SPREAD),
            lengths=np.tile(fit.lengths, _SPREAD),
            distances=ahead.ravel(),
        )

    @property
    def in_use_blocks(self) -> float:
        """Mean blocks in use at an admission."""
        return self.sums.mean_in_use_blocks

    @property
    def holding_seconds(self) -> float:
        """How long a block is held, s: blocks in use over blocks admitted a second (Little's law)."""
        sums = self.sums
        return self.in_use_blocks * sums.seconds / sums.prompt_blocks if sums.prompt_blocks else 0.0

    def slower(self, factor: float) -> Demand:
        """The same prompts over ``factor`` times as long: every rate, and with it the blocks in use, is divided by it.

        Equal to ``factor`` times the capacity (remark B.6): d(t), and the blocks in use, are divided by the factor.
        """
        sums = replace(self.sums, seconds=self.sums.seconds * factor, in_use_blocks=self.sums.in_use_blocks / factor)
        horizon = None if self.horizon_blocks is None else self.horizon_blocks / factor
        return replace(self, sums=sums, horizon_blocks=horizon)

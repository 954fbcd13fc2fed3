"""What the traffic asks of a cache, whatever cache it meets: the input of every what-if."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vllm_hitratio_plugin.model.hit_ratio_curve import HitRatioCurve
from vllm_hitratio_plugin.model.reuse_time import ReuseTimeModel
from vllm_hitratio_plugin.model.traffic import TrafficSums

#: The bins of the run table are that wide in time; each is spread over as many points.
_TIME_WIDTH = 0.06
_SPREAD = 6


@dataclass(frozen=True)
class Demand:
    """A stretch of traffic as one cache sees it.

    A what-if is a function from one demand to another: it changes rates, reuse times or lengths in the sums, and the
    estimator (docs/model.md#flow-form) does the rest. So changes compose, and each is a few lines.
    """

    sums: TrafficSums
    """Sums over the stretch; blocks of ``block_size`` tokens."""
    block_size: int
    unhashed: str
    """"tail" or "head": where a partly filled block goes when its request ends (docs/model.md#unhashed-blocks)."""
    horizon_blocks: float | None = None
    """Capacity beyond which nothing is known, since reuse of older blocks was not remembered; None: all is known."""
    left_out: int = 0
    """Prompts that the observed cache never admitted: the sums do not count them, a larger cache would."""

    @property
    def model(self) -> ReuseTimeModel:
        """The estimator on this traffic."""
        return ReuseTimeModel(self.sums)

    @property
    def curve(self) -> HitRatioCurve:
        """Hits at any capacity.

        The sums know reuse times to a few per cent only. Each row of the run table is spread over that width; otherwise
        the curve would be a staircase and its slope noise.
        """
        curve = self.model.curve
        spread = 1 + _TIME_WIDTH * (np.arange(_SPREAD) - (_SPREAD - 1) / 2) / _SPREAD
        unused = curve.distances - curve.least_capacity
        distances = np.where(curve.distances < 0, curve.distances, curve.least_capacity + spread[:, None] * unused)
        return replace(
            curve,
            runs=np.tile(curve.runs / _SPREAD, _SPREAD),
            lengths=np.tile(curve.lengths, _SPREAD),
            distances=distances.ravel(),
        )

    @property
    def in_use_blocks(self) -> float:
        """Mean blocks in use at an admission."""
        return self.sums.mean_in_use_blocks

    @property
    def use_seconds(self) -> float:
        """How long a block is in use, s: blocks in use over blocks admitted per second (Little's law)."""
        sums = self.sums
        return self.in_use_blocks * sums.seconds / sums.prompt_blocks if sums.prompt_blocks else 0.0

    def knows(self, capacity: float) -> bool:
        """Whether reuse at that capacity, blocks, was remembered."""
        return self.horizon_blocks is None or capacity <= self.horizon_blocks * (1 + 1e-9)

    def slower(self, factor: float) -> Demand:
        """The same prompts over ``factor`` times as long: every rate, and with it the blocks in use, is divided by it.

        Equal to ``factor`` times the capacity (remark B.6): d(t), and the blocks in use, are divided by the factor.
        """
        sums = replace(self.sums, seconds=self.sums.seconds * factor, in_use_blocks=self.sums.in_use_blocks / factor)
        horizon = None if self.horizon_blocks is None else self.horizon_blocks / factor
        return replace(self, sums=sums, horizon_blocks=horizon)

"""What the traffic asks of a cache, whatever cache it meets: the input of every what-if."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vllm_hitratio_plugin.model.flow import Fit, Flow, FlowSketch

_GAP_WIDTH = 0.06
_SPREAD = 6


@dataclass(frozen=True)
class Demand:
    """A stretch of traffic as one cache sees it.

    A what-if is a function from one demand to another: it changes rates, gaps or lengths in the sketch, and the
    estimator (MODEL section 3) does the rest. So changes compose, and each is a few lines.
    """

    sketch: FlowSketch
    """Sums over the stretch; blocks of ``block_size`` tokens."""
    block_size: int
    unhashed: str
    """"tail" or "head": where a partly filled block goes when its request ends (MODEL 4.2)."""
    horizon_blocks: float | None = None
    """Capacity beyond which nothing is known, since reuse of older blocks was not remembered; None: all is known."""
    left_out: int = 0
    """Prompts that the cache watched never admitted: the sketch knows nothing of them, a larger cache would."""

    @property
    def flow(self) -> Flow:
        """The estimator on this traffic."""
        return Flow(self.sketch)

    @property
    def fit(self) -> Fit:
        """Hits at any capacity.

        The sketch knows gaps to some per cent only; each of its cells is spread over that width, or the curve would be
        a staircase and its slope noise.
        """
        fit = self.flow.fit()
        spread = 1 + _GAP_WIDTH * (np.arange(_SPREAD) - (_SPREAD - 1) / 2) / _SPREAD
        idle = fit.ahead - fit.least_capacity
        ahead = np.where(fit.ahead < 0, fit.ahead, fit.least_capacity + spread[:, None] * idle)
        return replace(
            fit,
            runs=np.tile(fit.runs / _SPREAD, _SPREAD),
            lengths=np.tile(fit.lengths, _SPREAD),
            ahead=ahead.ravel(),
        )

    @property
    def pinned_blocks(self) -> float:
        """Mean blocks in use at an admission."""
        return self.sketch.pinned_blocks / self.sketch.requests if self.sketch.requests else 0.0

    @property
    def holding_seconds(self) -> float:
        """How long a block is held, s: blocks in use over blocks admitted a second (Little's law)."""
        sketch = self.sketch
        return self.pinned_blocks * sketch.seconds / sketch.prompt_blocks if sketch.prompt_blocks else 0.0

    def slower(self, factor: float) -> Demand:
        """The same prompts over ``factor`` times as long: every rate, and with it the blocks in use, is divided by it.

        Equal to ``factor`` times the capacity (remark B.6): d(t), and the blocks in use, are divided by the factor.
        """
        sketch = replace(
            self.sketch, seconds=self.sketch.seconds * factor, pinned_blocks=self.sketch.pinned_blocks / factor
        )
        horizon = None if self.horizon_blocks is None else self.horizon_blocks / factor
        return replace(self, sketch=sketch, horizon_blocks=horizon)

"""The paper's experiments 1 and 2 (section 4, appendix E), in virtual time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.interarrival import Exponential
from vllm_hitratio_plugin.model.mean_field import MeanField
from vllm_hitratio_plugin.replay.arrivals import poisson
from vllm_hitratio_plugin.replay.comparison import Comparison, PoolKind, compare
from vllm_hitratio_plugin.replay.generator import Traffic, draw_conversations, generate
from vllm_hitratio_plugin.replay.law import Law, exponential
from vllm_hitratio_plugin.replay.pools.pool import Unhashed
from vllm_hitratio_plugin.replay.turns import Turns, conversation_sample
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME

CAPACITY_BLOCKS = 2275
BLOCK_SIZE = 128
WARMUP = 1000
MEASURED = 5000

MEAN_FIELD_PRIOR = "mean_field_prior"
"""The paper's prior estimator: F exponential with the target mean. ``MEAN_FIELD`` is its posterior, with the measured
mean."""

ESTIMATORS = (MEAN_FIELD_PRIOR, MEAN_FIELD, REUSE_TIME)


@dataclass(frozen=True)
class Setting:
    """One point of an experiment."""

    arrival_rate: float
    """λ0, conversations per second."""

    mean_interarrival: float
    """μ_F, target mean of the interarrival times, seconds."""


SETTINGS: dict[str, tuple[Setting, ...]] = {
    "paper-1": tuple(Setting(1.5, mean) for mean in (90, 105, 120, 135, 150, 165, 180, 210, 240)),
    "paper-2": tuple(Setting(rate, 135) for rate in (0.5, 0.75, 1, 1.25, 1.5, 1.75, 2)),
}


@dataclass(frozen=True)
class Scale:
    """How many conversations."""

    warmup: int = WARMUP
    measured: int = MEASURED


@dataclass(frozen=True)
class Run:
    """One setting with one seed."""

    setting: Setting
    seed: int
    comparison: Comparison
    measured_interarrival: float
    """μ̂_F, seconds."""

    predicted: dict[str, float]
    """ĥ by ``ESTIMATORS``."""

    observed: float

    def absolute_error(self, estimator: str) -> float:
        """AE = |estimated - actual|."""
        return abs(self.predicted[estimator] - self.observed)

    def relative_error(self, estimator: str) -> float:
        """RE = AE / actual, a ratio."""
        return self.absolute_error(estimator) / self.observed


def run(
    setting: Setting,
    seed: int,
    *,
    conversations: Sequence[Turns] | None = None,
    pool: PoolKind = "builtin",
    unhashed: Unhashed = "tail",
    service: Law | None = None,
    response: Law | None = None,
    scale: Scale | None = None,
) -> Run:
    """Generate the traffic of a setting, put it through the pool, and estimate.

    ``conversations`` are turn lengths to draw from, None for the ShareGPT-like law. The paper's estimators get what the
    paper gives them: λ0, and the means (35) to (37) over the measured conversations. ``response`` is W^E2E of (80);
    ``service`` is how long a prompt holds its blocks. ``ValueError`` where the run is too small to say anything.
    """
    scale = scale or Scale()
    generated = generate(
        draw_conversations(conversations, scale.warmup + scale.measured, seed),
        Traffic(poisson(setting.arrival_rate), exponential(setting.mean_interarrival), response),
        block_size=BLOCK_SIZE,
        seed=seed,
        warmup=scale.warmup,
    )
    comparison = compare(
        generated.trace,
        CAPACITY_BLOCKS,
        pool=pool,
        unhashed=unhashed,
        service=service,
        window=generated.window,
        seed=seed,
    )
    workload = conversation_sample(generated.conversations, BLOCK_SIZE).workload(setting.arrival_rate)
    observed, reuse_time = comparison.observed.hit_ratio, comparison.predicted[REUSE_TIME]
    if not observed or reuse_time is None or not generated.interarrivals:
        raise ValueError(f"{scale.measured} conversations are too few: nothing was hit")
    measured = float(np.mean(generated.interarrivals))
    predicted = {REUSE_TIME: reuse_time}
    for estimator, mean in (
        (MEAN_FIELD_PRIOR, setting.mean_interarrival),
        (MEAN_FIELD, measured),
    ):
        predicted[estimator] = MeanField(workload, Exponential(mean)).hit_ratio(CAPACITY_BLOCKS) or 0.0
    return Run(setting, seed, comparison, measured, predicted, observed)


def error_summary(runs: Iterable[Run]) -> dict[str, dict[str, float]]:
    """Mean and largest errors over all runs, by estimator; relative ones as ratios."""
    done = list(runs)
    summary = {}
    for estimator in ESTIMATORS:
        absolute = [run.absolute_error(estimator) for run in done]
        relative = [run.relative_error(estimator) for run in done]
        summary[estimator] = {
            "mean_absolute": float(np.mean(absolute)),
            "max_absolute": max(absolute),
            "mean_relative": float(np.mean(relative)),
            "max_relative": max(relative),
        }
    return summary

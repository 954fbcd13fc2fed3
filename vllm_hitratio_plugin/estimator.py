"""From the sums of a window to what they say: prediction, curve, recommendation, drift."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vllm_hitratio_plugin.model.drift import Drift, drift
from vllm_hitratio_plugin.model.hit_ratio_curve import HitRatioCurve
from vllm_hitratio_plugin.model.interarrival import Empirical
from vllm_hitratio_plugin.model.jackknife import Uncertain, jackknife_stderr, ratio_jackknife
from vllm_hitratio_plugin.model.mean_field import MeanField
from vllm_hitratio_plugin.model.reuse_time import ReuseTimeModel, slot_curve
from vllm_hitratio_plugin.model.traffic import Array, TrafficSums
from vllm_hitratio_plugin.model.workload import Workload
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME, Estimate
from vllm_hitratio_plugin.stats.outcomes import none
from vllm_hitratio_plugin.stats.slot import Slot
from vllm_hitratio_plugin.stats.window import Span

#: Below this ceiling no curve can be far off, however few reuses it rests on: it lies between 0 and the ceiling.
_NO_REUSE = 0.01

#: Groups of the jackknife of the paper's estimator, few since each replica is a fit of its own.
_PAPER_GROUPS = 10


class Estimator:
    """Estimates over windows of one cache.

    Args:
        capacities: N, blocks, then the capacities of the curve.
        target: The hit ratio that a capacity is recommended for, 0 to 1.
        least_requests, least_reuses: What a window needs before its ratios are given.
    """

    def __init__(
        self, capacities: Sequence[int], *, target: float | None, least_requests: int, least_reuses: int
    ) -> None:
        self._capacity, *self._grid = capacities
        self._capacities: Array = np.asarray(capacities, dtype=float)
        self._target = target
        self._least_requests = least_requests
        self._least_reuses = least_reuses
        #: The current window against the one before, as of the last closed slot; None until both hold enough.
        self.drift: Drift | None = None
        # Standard error of the paper's estimator, and slots closed since it was worked out.
        self._paper_stderr: float | None = None
        self._closed_slots = 0
        self._drift_due = False

    def fit(self, slot: Slot, history: Sequence[TrafficSums]) -> None:
        """Work out what is expected of a slot, or of a part of one, after the parts of its ``history``."""
        if slot.sums.requests:
            slot.curve = slot_curve(slot.sums, history)
            slot.expected = slot.curve.hit_blocks(self._capacities)

    def slot_closed(self, traffic: bool) -> None:
        """A slot is over, with traffic in it or without."""
        self._closed_slots += 1
        self._drift_due |= traffic

    def least_seconds(self, sums: TrafficSums) -> float:
        """How long a window must be to cover T_C, s (docs/model.md#windows-and-confidence)."""
        time = ReuseTimeModel(sums).characteristic_time(self._capacity)
        return 3 * time if math.isfinite(time) else 0.0

    def mean_field(self, sums: TrafficSums) -> float | None:
        """The paper's estimate ĥ(N) on a window (39)."""
        model = _mean_field(sums)
        return None if model is None else model.hit_ratio(self._capacity)

    def estimate(self, time: float, span: Span, mean_field: float | None) -> Estimate:
        """Everything that the window says at ``time``, with the paper's estimate as given."""
        if self._drift_due:
            self.drift, self._drift_due = self._drift(span), False
        sums, capacity = span.sums, self._capacity
        model = ReuseTimeModel(sums)
        enough = sums.requests >= self._least_requests
        figures: dict[str, object] = {}
        if enough:
            figures |= {
                "characteristic_time": _finite(model.characteristic_time(capacity)),
                "characteristic_times": {size: _finite(model.characteristic_time(size)) for size in self._grid},
            }
        sparse = sums.reusable_blocks <= _NO_REUSE * sums.prompt_blocks
        ready = enough and (sums.reuse_runs >= self._least_reuses or sparse)
        if ready:
            figures |= self._ratios(span, mean_field) | _workload_figures(sums)
            figures |= {"ceiling": model.ceiling, "ceiling_stderr": _ceiling_stderr(span)}
            if self._target is not None:
                recommended = HitRatioCurve.total([slot.curve for slot in span.slots]).capacity_for(self._target)
                figures |= {"recommended_blocks": recommended, "reachable": recommended is not None}
        if self.drift is not None:
            figures |= {
                "drift_contributions": self.drift.contributions,
                "drift_significant": self.drift.significant,
            }
        return Estimate(
            time=time,
            window_seconds=sums.seconds,
            requests=int(sums.requests),
            reuses=int(sums.reuse_runs),
            ready=ready,
            capacity_blocks=capacity,
            in_use_blocks=sums.mean_in_use_blocks if sums.requests else None,
            target=self._target,
            outcomes=sum((slot.outcomes for slot in span.slots), none()).tolist(),
            **figures,  # type: ignore[arg-type]
        )

    def _ratios(self, span: Span, mean_field: float | None) -> dict[str, object]:
        slots = span.slots
        prompts = np.array([slot.sums.prompt_blocks for slot in slots])
        expected = np.array([slot.expected for slot in slots])
        shadows = np.array([slot.shadow for slot in slots])
        predicted = ratio_jackknife(expected[:, 0], prompts)
        model = ratio_jackknife(expected[:, 0] - shadows[:, 0], prompts)
        observed = divergence = engine = Uncertain()
        hits = np.array([slot.sums.hit_blocks for slot in slots], dtype=float)
        if not np.isnan(hits).any():
            observed = ratio_jackknife(hits, prompts)
            # Both sides share the noise of the same requests, so the difference itself is jackknifed.
            divergence = ratio_jackknife(hits - expected[:, 0], prompts)
            engine = ratio_jackknife(hits - shadows[:, 0], prompts)
        if self._paper_stderr is None or self._closed_slots >= len(slots) / _PAPER_GROUPS:
            # It takes many fits, so it waits until a part of the window is new.
            self._paper_stderr = _mean_field_stderr([slot.sums for slot in slots], self._capacity)
            self._closed_slots = 0
        ratios = (expected.sum(axis=0) / prompts.sum()).tolist()
        shadow = (shadows.sum(axis=0) / prompts.sum()).tolist()
        return {
            "observed": observed.value,
            "observed_stderr": observed.stderr,
            "predicted": {REUSE_TIME: predicted.value, MEAN_FIELD: mean_field},
            "predicted_stderr": {REUSE_TIME: predicted.stderr, MEAN_FIELD: self._paper_stderr},
            "divergence": divergence.value,
            "divergence_stderr": divergence.stderr,
            "shadow": shadow[0],
            "model_divergence": model.value,
            "model_divergence_stderr": model.stderr,
            "engine_divergence": engine.value,
            "engine_divergence_stderr": engine.stderr,
            "curve": dict(zip(self._grid, ratios[1:], strict=True)),
            "shadow_curve": dict(zip(self._grid, shadow[1:], strict=True)),
        }

    def _drift(self, span: Span) -> Drift | None:
        """The closed slots of the window against as many before them, which the window remembers anyway."""
        now = [slot.sums for slot in span.closed]
        before = [slot.sums for slot in span.before][-len(now) :]
        if len(before) < len(now):
            return None
        for window in (before, now):
            if sum(slot.requests for slot in window) < self._least_requests:
                return None
            if sum(slot.reuse_runs for slot in window) < self._least_reuses:
                return None
        return drift(before, now, self._capacity)


def _ceiling_stderr(span: Span) -> float | None:
    """Of n requests without any reuse, the next one may still have some: the rule of succession gives 1 / n."""
    reusable = np.array([slot.sums.reusable_blocks for slot in span.slots])
    error = ratio_jackknife(reusable, np.array([slot.sums.prompt_blocks for slot in span.slots])).stderr
    return error or 1 / span.sums.requests if not reusable.any() else error


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def _workload(sums: TrafficSums) -> Workload | None:
    """The paper's means from rates, as X = (λ0 X) / λ0; None where no conversation started in the window."""
    if sums.first_turns <= 0 or sums.seconds <= 0:
        return None
    started = sums.first_turns
    return Workload(
        arrival_rate=started / sums.seconds,
        history_workload=sums.prompt_blocks / started,
        reusable_workload=sums.returning_blocks / started,
        lifetime_blocks=sums.grown_blocks / started,
        turns=sums.requests / started,
    )


def _workload_figures(sums: TrafficSums) -> dict[str, object]:
    workload = _workload(sums)
    return {} if workload is None else vars(workload)


def _mean_field(sums: TrafficSums) -> MeanField | None:
    """The paper's estimator (39) on a window; None where it lacks a start or a follow-up turn."""
    workload, gaps = _workload(sums), sums.interarrivals
    if workload is None or workload.reusable_workload <= 0 or not len(gaps.turns):
        return None
    return MeanField(workload, Empirical(gaps.seconds / gaps.turns, gaps.turns))


def _mean_field_stderr(slots: Sequence[TrafficSums], capacity: float) -> float | None:
    """Delete-one-group jackknife of the paper's estimator."""
    groups = np.array_split(np.arange(len(slots)), min(_PAPER_GROUPS, len(slots)))
    totals = [TrafficSums.total([slots[index] for index in group], runs=False) for group in groups]
    replicas = []
    for index in range(len(totals)):
        without = _mean_field(TrafficSums.total(totals[:index] + totals[index + 1 :], runs=False))
        ratio = without.hit_ratio(capacity) if without is not None else None
        if ratio is not None:
            replicas.append(ratio)
    return jackknife_stderr(np.array(replicas))

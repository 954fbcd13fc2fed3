"""The demo in one picture: predicted and observed over time, and the hit ratio by capacity."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from examples.demo.outcome import Look, Outcome
from examples.demo.report import Report
from vllm_hitratio_plugin.snapshot import REUSE_TIME

OBSERVED, PREDICTED, TARGET, MUTED = "#d1495b", "#00607a", "#8a6d00", "#8b949e"
STYLE = {
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.8,
    "xtick.color": "#444c56",
    "ytick.color": "#444c56",
    "legend.fontsize": 9,
    "legend.framealpha": 0.95,
    "legend.edgecolor": "none",
}
BIN_LOOKS = 5
INTERVAL = 1.96


def draw(report: Report, path: Path) -> None:
    """Save the picture as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    where = "on a real vLLM" if report.reason is None else "in virtual time"
    sample = report.first.sample
    title = (
        f"Prefix-cache hit ratio, predicted and observed: {sample.requests:,} requests of"
        f" {sample.conversations} conversations {where}"
    )
    with pyplot.rc_context(STYLE):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(12.5, 4.8), width_ratios=(1.25, 1), layout="constrained")
        figure.suptitle(title, fontsize=12.5, x=0.01, ha="left", fontweight="bold")
        _over_time(left, report)
        _by_capacity(right, report)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def _over_time(axes: Any, report: Report) -> None:
    first, settings = report.first, report.settings
    looks = [look for look in first.looks if look.estimate.observed is not None and look.predicted is not None]
    if looks:
        times = [look.time for look in looks]
        predicted = np.array([look.predicted for look in looks], dtype=float)
        errors = INTERVAL * np.array([look.estimate.divergence_stderr for look in looks], dtype=float)
        band = {"color": PREDICTED, "alpha": 0.15, "linewidth": 0, "label": "95 % interval for observed"}
        axes.fill_between(times, predicted - errors, predicted + errors, **band)
        axes.plot(times, predicted, color=PREDICTED, linewidth=2.2, label="predicted (reuse_time)")
        axes.plot(times, [look.estimate.observed for look in looks], color=OBSERVED, linewidth=2.2, label="observed")
    middles, hits, expected = _bins(first.looks)
    every = f"per {BIN_LOOKS * settings.interval_seconds:g} s"
    axes.plot(middles, hits, "o", color=OBSERVED, markersize=4, alpha=0.55, label=f"observed, {every}")
    axes.plot(middles, expected, "_", color=PREDICTED, markersize=10, alpha=0.8, label=f"predicted, {every}")
    begin, end = settings.warmup_seconds, settings.end_seconds
    axes.axvspan(0, begin, color="#f3f4f6", zorder=0)
    axes.text(begin / 2, 0.97, "warm-up", transform=axes.get_xaxis_transform(), ha="center", va="top", color=MUTED)
    axes.axvline(end, color=MUTED, linewidth=1, linestyle=":")
    _level(axes, first.estimate.ceiling, "ceiling", MUTED, "--")
    axes.set(xlabel="seconds of load", ylabel="hit ratio (blocks)", ylim=(0, _top(first)))
    axes.set_xlim(0, max([end, *(look.time for look in first.looks)]))
    axes.set_title(f"over time, at {first.capacity_blocks:,} blocks", loc="left", fontsize=11)
    axes.legend(loc="lower right", ncols=2)


def _by_capacity(axes: Any, report: Report) -> None:
    first, second, curve = report.first, report.recommended, report.first.estimate.curve
    axes.plot(
        list(curve), list(curve.values()), color=PREDICTED, linewidth=2.2, label="predicted from the first server"
    )
    _mark(axes, first, "now: {:,} blocks\n{:.3f}", "observed")
    if first.recommended_blocks is not None:
        _level(axes, report.settings.target, f"target {report.settings.target:g}", TARGET, "-.")
        axes.axvline(first.recommended_blocks, color=TARGET, linewidth=1.2, linestyle="-.")
    if second is not None:
        _mark(axes, second, "recommended: {:,} blocks\nobserved there: {:.3f}", None)
    _level(axes, first.estimate.ceiling, "ceiling", MUTED, "--")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(xlabel="capacity, blocks", ylim=(0, _top(first)))
    axes.set_title("by capacity", loc="left", fontsize=11)
    axes.legend(loc="lower right")


def _level(axes: Any, value: float | None, text: str, color: str, linestyle: str) -> None:
    """A horizontal line and its name."""
    if value is not None:
        axes.axhline(value, color=color, linewidth=1.2, linestyle=linestyle)
        axes.text(0.01, value, text, transform=axes.get_yaxis_transform(), va="bottom", color=color)


def _mark(axes: Any, trial: Outcome, text: str, label: str | None) -> None:
    """What was observed at a capacity, in words."""
    observed = trial.estimate.observed
    if observed is None:
        return
    place = (trial.capacity_blocks, observed)
    axes.plot(*place, "o", color=OBSERVED, markersize=8, zorder=5, label=label)
    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    offset = {"xytext": (-12, 9), "textcoords": "offset points", "ha": "right"}
    axes.annotate(text.format(*place), place, fontsize=9.5, color=OBSERVED, bbox=box, **offset)


def _top(outcome: Outcome) -> float:
    estimate = outcome.estimate
    return min(1.0, 1.15 * max([estimate.ceiling or 0.0, estimate.observed or 0.0, *estimate.curve.values()])) or 1.0


def _bins(looks: Sequence[Look]) -> tuple[list[float], list[float], list[float]]:
    """Ratios of what the counters gained between every fifth look: middles, observed, predicted."""
    rows = []
    for before, after in pairwise(looks[::BIN_LOOKS]):
        gained = after.counters.since(before.counters)
        if gained.prompt_blocks:
            hits, expected = gained.hit_blocks, gained.predicted_hit_blocks[REUSE_TIME]
            rows.append(((before.time + after.time) / 2, hits / gained.prompt_blocks, expected / gained.prompt_blocks))
    middles, observed, predicted = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return middles, observed, predicted

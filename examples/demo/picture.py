"""The demo in one picture: predicted against observed over time, and the hit ratio against the capacity."""

from pathlib import Path
from typing import Any

import numpy as np

from examples.demo.outcome import Outcome, Point
from examples.demo.report import HEADLINE, Report

OBSERVED, PREDICTED, TARGET, MUTED = "#d1495b", "#00607a", "#8a6d00", "#8b949e"
BIN_SECONDS = 15.0
INTERVAL = 1.96


def draw(report: Report, path: Path) -> None:
    """Save the picture as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style = {
        "font.size": 10.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": MUTED,
        "axes.grid": True,
        "grid.color": "#e6e8eb",
        "grid.linewidth": 0.8,
        "xtick.color": "#444c56",
        "ytick.color": "#444c56",
    }
    with pyplot.rc_context(style):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(12.5, 4.8), width_ratios=(1.25, 1), layout="constrained")
        where = "on a real vLLM" if report.mode == "vllm" else "in virtual time"
        first = report.first
        figure.suptitle(
            f"Prefix-cache hit ratio, predicted and observed: {first.sample.requests:,} requests of"
            f" {first.sample.conversations} conversations {where}",
            fontsize=12.5,
            x=0.01,
            ha="left",
            fontweight="bold",
        )
        _over_time(left, report)
        _over_capacity(right, report)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def _over_time(axes: Any, report: Report) -> None:
    first, settings = report.first, report.settings
    axes.set_title(f"over time, at {first.capacity_blocks:,} blocks", loc="left", fontsize=11)
    begin, end = settings.warmup_seconds, settings.warmup_seconds + settings.measured_seconds
    known = [
        (point.time, point.observed, point.predicted, point.divergence_stderr)
        for point in first.series
        if point.observed is not None and point.predicted is not None
    ]
    if known:
        times, observed, predicted = (np.array([row[i] for row in known], dtype=float) for i in range(3))
        errors = np.array([np.nan if row[3] is None else row[3] for row in known], dtype=float)
        axes.fill_between(
            times,
            predicted - INTERVAL * errors,
            predicted + INTERVAL * errors,
            color=PREDICTED,
            alpha=0.15,
            linewidth=0,
            label="where observed should be, 95 %",
        )
        axes.plot(times, predicted, color=PREDICTED, linewidth=2.2, label="predicted (reuse_time)")
        axes.plot(times, observed, color=OBSERVED, linewidth=2.2, label="observed")
    middles, hits, expected = _bins(first.series)
    axes.plot(middles, hits, "o", color=OBSERVED, markersize=4, alpha=0.55, label=f"observed, each {BIN_SECONDS:.0f} s")
    axes.plot(
        middles, expected, "_", color=PREDICTED, markersize=10, alpha=0.8, label=f"predicted, each {BIN_SECONDS:.0f} s"
    )
    axes.axvspan(0, begin, color="#f3f4f6", zorder=0)
    axes.text(begin / 2, 0.97, "warm-up", transform=axes.get_xaxis_transform(), ha="center", va="top", color=MUTED)
    axes.axvline(end, color=MUTED, linewidth=1, linestyle=":")
    if first.ceiling is not None:
        axes.axhline(first.ceiling, color=MUTED, linewidth=1.2, linestyle="--")
        axes.text(end, first.ceiling, "ceiling ", ha="right", va="bottom", color=MUTED)
    axes.set_xlim(0, max([end, *(point.time for point in first.series)]))
    axes.set_ylim(0, _top(first))
    axes.set_xlabel("seconds of load")
    axes.set_ylabel("hit ratio (blocks)")
    axes.legend(loc="lower right", fontsize=9, framealpha=0.95, edgecolor="none", ncols=2)


def _over_capacity(axes: Any, report: Report) -> None:
    first, second = report.first, report.recommended
    axes.set_title("against capacity", loc="left", fontsize=11)
    sizes, values = np.array(list(first.curve)), np.array(list(first.curve.values()))
    predicted = first.predicted.get(HEADLINE)
    axes.plot(sizes, values, color=PREDICTED, linewidth=2.2, label="predicted from the first server")
    if predicted is not None and first.observed is not None:
        axes.plot(
            [first.capacity_blocks], [first.observed], "o", color=OBSERVED, markersize=8, label="observed", zorder=5
        )
        _mark(
            axes, first.capacity_blocks, first.observed, f"now: {first.capacity_blocks:,} blocks\n{first.observed:.3f}"
        )
    if first.recommended_blocks is not None:
        axes.axhline(first.target, color=TARGET, linewidth=1.2, linestyle="-.")
        axes.text(
            0.01,
            first.target,
            f"target {first.target:g}",
            transform=axes.get_yaxis_transform(),
            va="bottom",
            color=TARGET,
        )
        axes.axvline(first.recommended_blocks, color=TARGET, linewidth=1.2, linestyle="-.")
    if second is not None and second.observed is not None:
        axes.plot([second.capacity_blocks], [second.observed], "o", color=OBSERVED, markersize=8, zorder=5)
        label = f"recommended: {second.capacity_blocks:,} blocks\nobserved there: {second.observed:.3f}"
        _mark(axes, second.capacity_blocks, second.observed, label)
    if first.ceiling is not None:
        axes.axhline(first.ceiling, color=MUTED, linewidth=1.2, linestyle="--")
        axes.text(0.01, first.ceiling, "ceiling", transform=axes.get_yaxis_transform(), va="bottom", color=MUTED)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(0, _top(first))
    axes.set_xlabel("capacity, blocks")
    axes.legend(loc="lower right", fontsize=9, framealpha=0.95, edgecolor="none")


def _mark(axes: Any, size: float, value: float, text: str) -> None:
    axes.annotate(
        text,
        (size, value),
        xytext=(-12, 9),
        textcoords="offset points",
        ha="right",
        fontsize=9.5,
        color=OBSERVED,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )


def _top(outcome: Outcome) -> float:
    highest = max([outcome.ceiling or 0.0, outcome.observed or 0.0, *outcome.curve.values()], default=0.0)
    return min(1.0, 1.15 * highest) or 1.0


def _bins(series: list[Point]) -> tuple[list[float], list[float], list[float]]:
    """Ratios of what the counters gained in each `BIN_SECONDS`: middles, observed, predicted."""
    rows = [
        (point.time, point.prompt_blocks, point.hit_blocks, point.predicted_hit_blocks)
        for point in series
        if point.prompt_blocks is not None and point.hit_blocks is not None and point.predicted_hit_blocks is not None
    ]
    middles: list[float] = []
    hits: list[float] = []
    expected: list[float] = []
    last = rows[0] if rows else None
    for row in rows[1:]:
        if last is None or row[0] - last[0] < BIN_SECONDS or row[1] <= last[1]:
            continue
        blocks = row[1] - last[1]
        middles.append((row[0] + last[0]) / 2)
        hits.append((row[2] - last[2]) / blocks)
        expected.append((row[3] - last[3]) / blocks)
        last = row
    return middles, hits, expected

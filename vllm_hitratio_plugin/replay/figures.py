"""Figures like the paper's 3 to 6, of convergence, and of moving traffic."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vllm_hitratio_plugin.replay.experiments.convergence import Point
from vllm_hitratio_plugin.replay.experiments.nonstationary import WindowedRun
from vllm_hitratio_plugin.replay.experiments.paper import ESTIMATORS, MEAN_FIELD_PRIOR, Run
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME

_STYLE: dict[str, dict[str, Any]] = {
    "actual": {
        "label": "actual",
        "color": "#222222",
        "marker": "o",
        "markersize": 9,
        "markerfacecolor": "none",
        "linestyle": "none",
        "zorder": 3,
    },
    MEAN_FIELD_PRIOR: {"label": "paper, prior", "color": "#E69F00", "marker": "s", "linestyle": "--"},
    MEAN_FIELD: {"label": "paper, posterior", "color": "#0072B2", "marker": "^", "linestyle": "-."},
    REUSE_TIME: {"label": "reuse time (ours)", "color": "#009E73", "marker": "D", "linewidth": 1.6},
}
"""Colours that are distinct without red and green."""


class FigureError(RuntimeError):
    """matplotlib is not installed."""


def pyplot() -> Any:
    """matplotlib's pyplot without a screen; ``FigureError`` with one sentence where it is not installed."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise FigureError(
            "figures need matplotlib: install the extra 'lab' (pip install 'vllm-hitratio-plugin[lab]')"
        ) from None
    plt.rcParams.update(
        {
            "figure.figsize": (6.4, 4.0),
            "figure.constrained_layout.use": True,
            "savefig.dpi": 160,
            "axes.grid": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.alpha": 0.3,
            "legend.frameon": False,
            "lines.markersize": 5,
        }
    )
    return plt


def paper_figures(runs: Sequence[Run], axis: str, label: str, title: str, stem: Path) -> list[Path]:
    """Hit ratio, absolute and relative error against ``axis``: 'mean_interarrival' or 'arrival_rate'.

    Lines are means over the seeds, bars span them.
    Files: ``<stem>-hit-ratio.png``, ``<stem>-absolute-error.png``, ``<stem>-relative-error.png``.
    """
    by_setting: dict[float, list[Run]] = {}
    for run in runs:
        by_setting.setdefault(getattr(run.setting, axis), []).append(run)
    settings = sorted(by_setting.items())
    seeds = len({run.seed for run in runs})
    title = f"{title}, {seeds} seed{'s' if seeds > 1 else ''}"

    def draw(name: str, axis_label: str, series: Mapping[str, Callable[[Run], float]], factor: float = 1.0) -> Path:
        plt = pyplot()
        figure, axes = plt.subplots()
        for key, value in series.items():
            values = [[factor * value(run) for run in group] for _, group in settings]
            means = [float(np.mean(group)) for group in values]
            spread = [
                [mean - min(group) for mean, group in zip(means, values, strict=True)],
                [max(group) - mean for mean, group in zip(means, values, strict=True)],
            ]
            axes.errorbar([x for x, _ in settings], means, yerr=spread if seeds > 1 else None, capsize=2, **_STYLE[key])
        axes.set(xlabel=label, ylabel=axis_label, title=title)
        axes.set_ylim(bottom=0)
        axes.legend()
        path = stem.with_name(f"{stem.name}-{name}.png")
        figure.savefig(path)
        plt.close(figure)
        return path

    def series(value: Callable[[Run, str], float]) -> dict[str, Callable[[Run], float]]:
        return {name: partial(lambda name, run: value(run, name), name) for name in ESTIMATORS}

    return [
        draw("hit-ratio", "hit ratio", {"actual": _observed} | series(lambda run, name: run.predicted[name])),
        draw("absolute-error", "absolute error of the hit ratio", series(Run.absolute_error)),
        draw("relative-error", "relative error, %", series(Run.relative_error), 100.0),
    ]


def _observed(run: Run) -> float:
    return run.observed


def convergence_figure(points: Sequence[Point], stem: Path) -> Path:
    """Deviations of hit ratio and survival time from their limits against N, with a line of slope -1/2."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.0))
    capacities = sorted({point.capacity_blocks for point in points})
    panels: list[tuple[Any, Callable[[Point], float], str, str]] = [
        (left, lambda p: abs(p.observed - p.predicted), "#0072B2", "hit ratio: |h$^{(N)}$ - h$^{(∞)}$|"),
        (right, lambda p: p.survival_deviation, "#009E73", "survival time: RMS of τ$_C^{(N)}$ - T$_C$, s"),
    ]
    for axes, value, color, label in panels:
        axes.loglog([p.capacity_blocks for p in points], [value(p) for p in points], "o", color=color, alpha=0.4)
        means = [
            float(np.sqrt(np.mean([value(p) ** 2 for p in points if p.capacity_blocks == capacity])))
            for capacity in capacities
        ]
        axes.loglog(capacities, means, "-", color=color, label="measured")
        guide = means[0] * np.sqrt(capacities[0] / np.array(capacities))
        axes.loglog(capacities, guide, "--", color="#888888", label="N$^{-1/2}$")
        if axes is left:
            bounds = [np.mean([p.bound for p in points if p.capacity_blocks == capacity]) for capacity in capacities]
            axes.loglog(capacities, bounds, ":", color="#D55E00", label="bound (26); above 1 it says nothing")
        axes.set(xlabel="capacity N, blocks", ylabel=label)
        axes.set_xticks(capacities, [f"{capacity:,}" for capacity in capacities], rotation=45)
        axes.minorticks_off()
        axes.legend()
    figure.suptitle("Algorithm 1 converges to its mean field (theorems C.4, C.5)")
    path = stem.with_name(f"{stem.name}.png")
    figure.savefig(path)
    plt.close(figure)
    return path


def nonstationary_figure(runs: Sequence[WindowedRun], stem: Path) -> Path:
    """Observed and predicted hit ratio over time, one panel per scenario, in the shortest of the windows."""
    plt = pyplot()
    shortest = min(run.window_seconds for run in runs)
    first_seed = min(run.seed for run in runs)
    shown = [run for run in runs if run.window_seconds == shortest and run.seed == first_seed]
    figure, panels = plt.subplots(len(shown), 1, figsize=(8.0, 2.1 * len(shown)), squeeze=False)
    for axes, run in zip(panels[:, 0], shown, strict=True):
        times = np.array([estimate.time for estimate in run.estimates]) / 60
        observed = np.array([estimate.observed for estimate in run.estimates], dtype=float)
        predicted = np.array([estimate.predicted[REUSE_TIME] for estimate in run.estimates], dtype=float)
        half = 1.96 * np.array([estimate.divergence_stderr for estimate in run.estimates], dtype=float)
        axes.fill_between(times, predicted - half, predicted + half, color="#009E73", alpha=0.25, linewidth=0)
        axes.plot(times, predicted, color="#009E73", linewidth=1.4, label="predicted, 95 % interval")
        axes.plot(times, observed, color="#222222", linewidth=1.0, linestyle="--", label="observed")
        axes.set(ylabel="hit ratio", title=f"{run.scenario} ({run.arrivals})")
    panels[0, 0].legend(ncols=2)
    panels[-1, 0].set_xlabel(f"minutes; sliding window of {shortest:g} s")
    path = stem.with_name(f"{stem.name}.png")
    figure.savefig(path)
    plt.close(figure)
    return path

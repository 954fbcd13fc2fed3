"""What the experiments of ``hitratio experiment`` have to say: JSON, CSV, a table and figures."""

import argparse
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vllm_hitratio_plugin.cli.errors import UsageError
from vllm_hitratio_plugin.cli.output import seconds
from vllm_hitratio_plugin.cli.progress import progress
from vllm_hitratio_plugin.cli.replay import result_json
from vllm_hitratio_plugin.wording import fixed_percent, signed_points

if TYPE_CHECKING:
    from vllm_hitratio_plugin.replay.experiments.convergence import Point
    from vllm_hitratio_plugin.replay.experiments.nonstationary import WindowedRun
    from vllm_hitratio_plugin.replay.experiments.paper import Run
    from vllm_hitratio_plugin.replay.turns import Turns

Setting = TypeVar("Setting")


@dataclass(frozen=True)
class Results:
    """What an experiment measured, in every form."""

    settings: list[dict[str, Any]]
    """JSON, one per setting."""

    summary: dict[str, Any]
    """JSON, over all settings."""

    rows: list[dict[str, Any]]
    """CSV, one per run."""

    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    """For people."""

    draw: Callable[[Path], list[Path]]
    """Draw the figures; file names begin as the path does."""


def paper(options: argparse.Namespace, conversations: "list[Turns] | None") -> Results:
    """Run one of the paper's two experiments, with every setting and seed."""
    from vllm_hitratio_plugin.replay.experiments.paper import ESTIMATORS, SETTINGS, Scale, error_summary, run
    from vllm_hitratio_plugin.replay.figures import paper_figures
    from vllm_hitratio_plugin.replay.law import parse_duration

    settings = SETTINGS[options.name]
    service = parse_duration(options.service_time)
    response = parse_duration(options.response_time)
    scale = Scale() if options.conversations is None else Scale(options.conversations // 5, options.conversations)
    runs: list[Run] = [
        run(
            setting,
            seed,
            conversations=conversations,
            pool=options.pool,
            unhashed=options.unhashed,
            service=service,
            response=response,
            scale=scale,
        )
        for setting, seed in _each(settings, options.seeds)
    ]
    results: list[dict[str, Any]] = []
    for setting in settings:
        group = [run for run in runs if run.setting == setting]
        observed = _mean(run.observed for run in group)
        predicted = {name: _mean(run.predicted[name] for run in group) for name in ESTIMATORS}
        results.append(
            {
                "arrival_rate": setting.arrival_rate,
                "mean_gap_s": setting.mean_interarrival,
                "measured_mean_gap_s": _mean(run.measured_interarrival for run in group),
                "capacity_blocks": group[0].comparison.capacity_blocks,
                "observed": observed,
                "predicted": predicted,
                "error": predicted["reuse_time"] - observed,
                "relative_error": predicted["reuse_time"] / observed - 1,
                "largest_error": max(run.absolute_error("reuse_time") for run in group),
                "characteristic_time_s": _mean(run.comparison.estimate.characteristic_time for run in group),
                "runs": [
                    {"seed": run.seed, "measured_mean_gap_s": run.measured_interarrival}
                    | result_json(run.comparison)
                    | {"predicted": run.predicted}
                    for run in group
                ],
            }
        )
    first = options.name == "paper-1"
    return Results(
        settings=results,
        summary=error_summary(runs),
        rows=[_paper_row(run) for run in runs],
        columns=("λ0, 1/s", "μ, s", "actual", "prior", "posterior", "reuse time", "error, points", "T_C"),
        lines=[
            (
                f"{result['arrival_rate']:g}",
                f"{result['mean_gap_s']:g}",
                fixed_percent(result["observed"], 2),
                *(fixed_percent(result["predicted"][name], 2) for name in ESTIMATORS),
                signed_points(result["error"]),
                seconds(result["characteristic_time_s"]),
            )
            for result in results
        ],
        draw=lambda stem: paper_figures(
            runs,
            "mean_interarrival" if first else "arrival_rate",
            "target mean interarrival time μ, s" if first else "conversation arrival rate λ0, 1/s",
            ("Experiment 1: λ0 = 1.5 /s" if first else "Experiment 2: μ = 135 s") + f", unhashed to {options.unhashed}",
            stem,
        ),
    )


def _paper_row(run: "Run") -> dict[str, Any]:
    row: dict[str, Any] = {
        "arrival_rate": run.setting.arrival_rate,
        "mean_gap_s": run.setting.mean_interarrival,
        "seed": run.seed,
        "measured_mean_gap_s": run.measured_interarrival,
        "observed": run.observed,
    }
    for name, value in run.predicted.items():
        row |= {
            name: value,
            f"{name}_absolute_error": run.absolute_error(name),
            f"{name}_relative_error": run.relative_error(name),
        }
    return row | {
        "characteristic_time_s": run.comparison.estimate.characteristic_time,
        "mean_pinned_blocks": run.comparison.observed.mean_in_use_blocks,
        "delayed_prompts": run.comparison.observed.delayed,
    }


def convergence(options: argparse.Namespace, conversations: "list[Turns] | None") -> Results:
    """Run Algorithm 1 at growing capacity."""
    from vllm_hitratio_plugin.replay.experiments.convergence import CAPACITIES, MEASURED, exponent, run
    from vllm_hitratio_plugin.replay.figures import convergence_figure

    if (options.pool, options.unhashed, options.service_time) != ("builtin", "tail", None):
        raise UsageError("convergence is about Algorithm 1 and takes no --pool, --unhashed or --service-time")
    _refuse_response_time(options)
    measured = options.conversations or MEASURED
    done: list[Point] = [
        run(capacity, seed, conversations=conversations, measured=measured)
        for capacity, seed in _each(CAPACITIES, options.seeds)
    ]
    results: list[dict[str, Any]] = []
    for capacity in CAPACITIES:
        group = [point for point in done if point.capacity_blocks == capacity]
        observed, predicted = _mean(point.observed for point in group), _mean(point.predicted for point in group)
        results.append(
            {
                "capacity_blocks": capacity,
                "observed": observed,
                "predicted": {"mean_field": predicted},
                "error": predicted - observed,
                "characteristic_time_s": _mean(point.characteristic_time for point in group),
                "mean_survival_s": _mean(point.mean_survival for point in group),
                "survival_deviation_s": _mean(point.survival_deviation for point in group),
                "bound": _mean(point.bound for point in group),
            }
        )
    return Results(
        settings=results,
        summary={
            "hit_ratio_error_exponent": exponent(done, lambda point: point.observed - point.predicted),
            "survival_deviation_exponent": exponent(done, lambda point: point.survival_deviation),
        },
        rows=[asdict(point) for point in done],
        columns=("blocks", "h(N)", "h(∞)", "error, points", "bound, points", "T_C", "RMS of τ_C - T_C"),
        lines=[
            (
                f"{result['capacity_blocks']:,}",
                fixed_percent(result["observed"], 2),
                fixed_percent(result["predicted"]["mean_field"], 2),
                signed_points(result["error"]),
                f"{100 * result['bound']:.1f}",
                seconds(result["characteristic_time_s"]),
                seconds(result["survival_deviation_s"]),
            )
            for result in results
        ],
        draw=lambda stem: [convergence_figure(done, stem)],
    )


def nonstationary(options: argparse.Namespace, conversations: "list[Turns] | None") -> Results:
    """Run a ramp, a wave and bursts, each in sliding windows."""
    from vllm_hitratio_plugin.replay.experiments.nonstationary import CONVERSATIONS, SCENARIOS, WINDOWS, run
    from vllm_hitratio_plugin.replay.figures import nonstationary_figure
    from vllm_hitratio_plugin.replay.law import parse_duration

    _refuse_response_time(options)
    service = parse_duration(options.service_time)
    runs: list[WindowedRun] = []
    for scenario, seed in _each(SCENARIOS, options.seeds):
        runs += run(
            scenario,
            seed,
            conversations=conversations,
            pool=options.pool,
            unhashed=options.unhashed,
            service=service,
            count=options.conversations or CONVERSATIONS,
        )
    results: list[dict[str, Any]] = []
    for scenario in SCENARIOS:
        for window in WINDOWS:
            group = [done for done in runs if (done.scenario, done.window_seconds) == (scenario, window)]
            results.append(
                {
                    "scenario": scenario,
                    "arrivals": group[0].arrivals,
                    "window_s": window,
                    "windows": sum(len(done.errors) for done in group),
                    "mean_absolute_error": _mean(done.mean_absolute_error for done in group),
                    "largest_error": max(done.largest_error for done in group),
                    "coverage": _mean(done.coverage for done in group),
                }
            )
    return Results(
        settings=results,
        summary={
            "mean_absolute_error": _mean(result["mean_absolute_error"] for result in results),
            "largest_error": max(result["largest_error"] for result in results),
            "least_coverage": min(result["coverage"] for result in results),
        },
        rows=[
            {
                "scenario": done.scenario,
                "window_s": done.window_seconds,
                "seed": done.seed,
                "time_s": estimate.time,
                "observed": estimate.observed,
                "reuse_time": estimate.predicted["reuse_time"],
                "mean_field": estimate.predicted["mean_field"],
                "difference_stderr": estimate.divergence_stderr,
            }
            for done in runs
            for estimate in done.estimates
        ],
        columns=("traffic", "window", "windows", "mean error, points", "largest", "95 % interval covers"),
        lines=[
            (
                result["scenario"],
                seconds(result["window_s"]),
                str(result["windows"]),
                f"{100 * result['mean_absolute_error']:.2f}",
                f"{100 * result['largest_error']:.2f}",
                fixed_percent(result["coverage"]),
            )
            for result in results
        ],
        draw=lambda stem: [nonstationary_figure(runs, stem)],
    )


def _each(settings: Collection[Setting], seeds: int) -> Iterator[tuple[Setting, int]]:
    """Every setting with every seed, behind a progress bar."""
    with progress(len(settings) * seeds, "runs") as tick:
        for setting in settings:
            for seed in range(seeds):
                yield setting, seed
                if tick is not None:
                    tick(1)


def _refuse_response_time(options: argparse.Namespace) -> None:
    if options.response_time is not None:
        raise UsageError("--response-time is for paper-1 and paper-2")


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan

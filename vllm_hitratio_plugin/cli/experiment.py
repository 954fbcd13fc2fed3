"""``hitratio experiment``: how accurate the estimators are, measured."""

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_hitratio_plugin.cli.errors import UsageError, usage
from vllm_hitratio_plugin.cli.output import percent, points, print_json, print_table, seconds
from vllm_hitratio_plugin.cli.progress import progress
from vllm_hitratio_plugin.cli.replay import add_pool_arguments, add_response_argument, duration_law, result_json
from vllm_hitratio_plugin.cli.values import count

if TYPE_CHECKING:
    from vllm_hitratio_plugin.replay.experiments.convergence import Point
    from vllm_hitratio_plugin.replay.experiments.nonstationary import Outcome
    from vllm_hitratio_plugin.replay.experiments.paper import Run
    from vllm_hitratio_plugin.replay.turns import Turns

EXPERIMENTS = ("paper-1", "paper-2", "convergence", "nonstationary")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "name",
        choices=EXPERIMENTS,
        help="paper-1: think times of 90 to 240 s at 1.5 conversations a second; paper-2: 0.5 to 2 a second at 135 s; "
        "convergence: Algorithm 1 at growing capacity; nonstationary: sliding windows under a ramp, a wave and bursts",
    )
    parser.add_argument(
        "--turn-lengths", metavar="FILE", help="conversations to draw from (default: a ShareGPT-like law)"
    )
    parser.add_argument("--seeds", type=count, default=1, metavar="K", help="repeat with K seeds (default 1)")
    add_pool_arguments(parser)
    add_response_argument(parser)
    parser.add_argument("--out", metavar="DIR", help="write the rows as CSV and draw the figures there")
    parser.add_argument(
        "--conversations",
        type=count,
        metavar="K",
        help="measured ones, for a quick look (default: paper 5000, convergence 20000, nonstationary 12000 in all)",
    )
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Report:
    """What an experiment has to say, in every form."""

    results: list[dict[str, Any]]
    """JSON, one a setting."""

    summary: dict[str, Any]
    """JSON, over all settings."""

    rows: list[dict[str, Any]]
    """CSV, one a run."""

    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    """For people."""

    draw: Callable[[Path], list[Path]]
    """Draw the figures; file names begin as the path does."""


def run(options: argparse.Namespace) -> None:
    """Run an experiment and print, write and draw what came out."""
    from vllm_hitratio_plugin.replay.figures import FigureError, pyplot
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPoolError

    if options.out is not None:
        with usage(FigureError):
            pyplot()  # better now than after the work
        Path(options.out).mkdir(parents=True, exist_ok=True)
    make = {"convergence": _convergence, "nonstationary": _nonstationary}.get(options.name, _paper)
    conversations = _conversations(options.turn_lengths)
    with usage(ValueError, VllmPoolError):
        report = make(options, conversations)
    written: list[str] = []
    if options.out is not None:
        stem = Path(options.out) / options.name
        written = [_write_csv(stem.with_name(f"{stem.name}.csv"), report.rows), *map(str, report.draw(stem))]
    if options.json:
        setting = {
            "experiment": options.name,
            "turn_lengths": options.turn_lengths,
            "seeds": options.seeds,
            "pool": options.pool,
            "unhashed": options.unhashed,
            "service_time": options.service_time,
            "response_time": options.response_time,
        }
        print_json(setting | {"results": report.results, "summary": report.summary, "files": written})
        return
    print_table(report.columns, report.lines)
    for path in written:
        print(f"wrote {path}", file=sys.stderr)


def _conversations(path: str | None) -> "list[Turns] | None":
    from vllm_hitratio_plugin.replay.formats.source import read_source
    from vllm_hitratio_plugin.replay.trace import TraceError

    if path is None:
        return None
    with usage(TraceError):
        conversations = read_source(path, "turn-lengths")
    assert isinstance(conversations, list)
    return conversations


def _paper(options: argparse.Namespace, conversations: "list[Turns] | None") -> Report:
    from vllm_hitratio_plugin.replay.experiments.paper import ESTIMATORS, SETTINGS, Scale, error_summary, run
    from vllm_hitratio_plugin.replay.figures import paper_figures

    settings = SETTINGS[options.name]
    service = duration_law(options.service_time)
    response = duration_law(options.response_time)
    scale = Scale() if options.conversations is None else Scale(options.conversations // 5, options.conversations)
    runs: list[Run] = []
    with progress(len(settings) * options.seeds, "runs") as tick:
        for setting in settings:
            for seed in range(options.seeds):
                runs.append(
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
                )
                if tick is not None:
                    tick(1)
    results: list[dict[str, Any]] = []
    for setting in settings:
        group = [run for run in runs if run.setting == setting]
        observed = _mean(run.observed for run in group)
        predicted = {name: _mean(run.predicted[name] for run in group) for name in ESTIMATORS}
        results.append(
            {
                "arrival_rate": setting.arrival_rate,
                "mean_gap_s": setting.mean_gap,
                "measured_mean_gap_s": _mean(run.measured_gap for run in group),
                "capacity_blocks": group[0].comparison.capacity_blocks,
                "observed": observed,
                "predicted": predicted,
                "error": predicted["reuse_time"] - observed,
                "relative_error": predicted["reuse_time"] / observed - 1,
                "largest_error": max(run.absolute_error("reuse_time") for run in group),
                "characteristic_time_s": _mean(run.comparison.estimate.characteristic_time for run in group),
                "runs": [
                    {"seed": run.seed, "measured_mean_gap_s": run.measured_gap}
                    | result_json(run.comparison)
                    | {"predicted": run.predicted}
                    for run in group
                ],
            }
        )
    first = options.name == "paper-1"
    return Report(
        results=results,
        summary=error_summary(runs),
        rows=[_paper_row(run) for run in runs],
        columns=("λ0, 1/s", "μ, s", "actual", "prior", "posterior", "reuse time", "error, points", "T_C"),
        lines=[
            (
                f"{result['arrival_rate']:g}",
                f"{result['mean_gap_s']:g}",
                percent(result["observed"]),
                *(percent(result["predicted"][name]) for name in ESTIMATORS),
                points(result["error"]),
                seconds(result["characteristic_time_s"]),
            )
            for result in results
        ],
        draw=lambda stem: paper_figures(
            runs,
            "mean_gap" if first else "arrival_rate",
            "target mean gap μ, s" if first else "conversation arrival rate λ0, 1/s",
            ("Experiment 1: λ0 = 1.5 /s" if first else "Experiment 2: μ = 135 s") + f", unhashed to {options.unhashed}",
            stem,
        ),
    )


def _paper_row(run: "Run") -> dict[str, Any]:
    row: dict[str, Any] = {
        "arrival_rate": run.setting.arrival_rate,
        "mean_gap_s": run.setting.mean_gap,
        "seed": run.seed,
        "measured_mean_gap_s": run.measured_gap,
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


def _convergence(options: argparse.Namespace, conversations: "list[Turns] | None") -> Report:
    from vllm_hitratio_plugin.replay.experiments.convergence import CAPACITIES, MEASURED, exponent, run
    from vllm_hitratio_plugin.replay.figures import convergence_figure

    if (options.pool, options.unhashed, options.service_time) != ("builtin", "tail", None):
        raise UsageError("convergence is about Algorithm 1 and takes no --pool, --unhashed or --service-time")
    _refuse_response_time(options)
    measured = options.conversations or MEASURED
    done: list[Point] = []
    with progress(len(CAPACITIES) * options.seeds, "runs") as tick:
        for capacity in CAPACITIES:
            for seed in range(options.seeds):
                done.append(run(capacity, seed, conversations=conversations, measured=measured))
                if tick is not None:
                    tick(1)
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
            }
        )
    return Report(
        results=results,
        summary={
            "hit_ratio_error_exponent": exponent(done, lambda point: point.observed - point.predicted),
            "survival_deviation_exponent": exponent(done, lambda point: point.survival_deviation),
        },
        rows=[asdict(point) for point in done],
        columns=("blocks", "h(N)", "h(∞)", "error, points", "T_C", "RMS of τ_C - T_C"),
        lines=[
            (
                f"{result['capacity_blocks']:,}",
                percent(result["observed"]),
                percent(result["predicted"]["mean_field"]),
                points(result["error"]),
                seconds(result["characteristic_time_s"]),
                seconds(result["survival_deviation_s"]),
            )
            for result in results
        ],
        draw=lambda stem: [convergence_figure(done, stem)],
    )


def _nonstationary(options: argparse.Namespace, conversations: "list[Turns] | None") -> Report:
    from vllm_hitratio_plugin.replay.experiments.nonstationary import CONVERSATIONS, SCENARIOS, WINDOWS, run
    from vllm_hitratio_plugin.replay.figures import nonstationary_figure

    _refuse_response_time(options)
    service = duration_law(options.service_time)
    outcomes: list[Outcome] = []
    with progress(len(SCENARIOS) * options.seeds, "runs") as tick:
        for scenario in SCENARIOS:
            for seed in range(options.seeds):
                outcomes += run(
                    scenario,
                    seed,
                    conversations=conversations,
                    pool=options.pool,
                    unhashed=options.unhashed,
                    service=service,
                    count=options.conversations or CONVERSATIONS,
                )
                if tick is not None:
                    tick(1)
    results: list[dict[str, Any]] = []
    for scenario in SCENARIOS:
        for window in WINDOWS:
            group = [o for o in outcomes if (o.scenario, o.window_seconds) == (scenario, window)]
            results.append(
                {
                    "scenario": scenario,
                    "arrivals": group[0].arrivals,
                    "window_s": window,
                    "windows": sum(len(outcome.errors) for outcome in group),
                    "mean_absolute_error": _mean(outcome.mean_absolute_error for outcome in group),
                    "largest_error": max(outcome.largest_error for outcome in group),
                    "coverage": _mean(outcome.coverage for outcome in group),
                }
            )
    return Report(
        results=results,
        summary={
            "mean_absolute_error": _mean(result["mean_absolute_error"] for result in results),
            "largest_error": max(result["largest_error"] for result in results),
            "least_coverage": min(result["coverage"] for result in results),
        },
        rows=[
            {
                "scenario": outcome.scenario,
                "window_s": outcome.window_seconds,
                "seed": outcome.seed,
                "time_s": look.time,
                "observed": look.observed,
                "reuse_time": look.predicted["reuse_time"],
                "mean_field": look.predicted["mean_field"],
                "difference_stderr": look.divergence_stderr,
            }
            for outcome in outcomes
            for look in outcome.estimates
        ],
        columns=("traffic", "window", "windows", "mean error, points", "largest", "95 % interval covers"),
        lines=[
            (
                result["scenario"],
                seconds(result["window_s"]),
                str(result["windows"]),
                f"{100 * result['mean_absolute_error']:.2f}",
                f"{100 * result['largest_error']:.2f}",
                percent(result["coverage"], 1),
            )
            for result in results
        ],
        draw=lambda stem: [nonstationary_figure(outcomes, stem)],
    )


def _refuse_response_time(options: argparse.Namespace) -> None:
    if options.response_time is not None:
        raise UsageError("--response-time is for paper-1 and paper-2")


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)

"""``hitratio experiment``: how accurate the estimators are, measured."""

import argparse
import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_hitratio_plugin.cli.errors import usage
from vllm_hitratio_plugin.cli.experiment_results import convergence, nonstationary, paper
from vllm_hitratio_plugin.cli.output import print_json, print_table
from vllm_hitratio_plugin.cli.replay import add_pool_arguments, add_response_argument
from vllm_hitratio_plugin.cli.values import count

if TYPE_CHECKING:
    from vllm_hitratio_plugin.replay.turns import Turns

EXPERIMENTS = ("paper-1", "paper-2", "convergence", "nonstationary")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "name",
        choices=EXPERIMENTS,
        help="paper-1: think times of 90 to 240 s at 1.5 conversations/s; paper-2: 0.5 to 2 conversations/s at 135 s; "
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


def run(options: argparse.Namespace) -> None:
    """Run an experiment; print, write and draw its results."""
    from vllm_hitratio_plugin.replay.figures import FigureError, pyplot
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPoolError

    if options.out is not None:
        with usage(FigureError):
            pyplot()  # better now than after the work
        Path(options.out).mkdir(parents=True, exist_ok=True)
    make = {"convergence": convergence, "nonstationary": nonstationary}.get(options.name, paper)
    conversations = _conversations(options.turn_lengths)
    with usage(ValueError, VllmPoolError):
        results = make(options, conversations)
    written: list[str] = []
    if options.out is not None:
        stem = Path(options.out) / options.name
        written = [_write_csv(stem.with_name(f"{stem.name}.csv"), results.rows), *map(str, results.draw(stem))]
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
        print_json(setting | {"results": results.settings, "summary": results.summary, "files": written})
        return
    print_table(results.columns, results.lines)
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


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)

"""How accurate the estimators are: runs the laboratory's own commands, and makes docs/accuracy.md of what they print.

    python -m benchmarks.accuracy          # about 10 minutes; needs the traces next to the repository

Each table names the command that made it. Where a bar is set, the page says whether it was met.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OUT = ROOT / "build" / "accuracy"
PAGE = ROOT / "docs" / "accuracy.md"
PICTURES = ROOT / "docs" / "pictures" / "accuracy"

MOONCAKE = {1000: 0.045, 2000: 0.054, 5000: 0.112, 10000: 0.212, 20000: 0.288, 50000: 0.355}
"""Known hit ratios of an exact block LRU, partly filled blocks at the tail (the traces' README)."""

Table = list[list[str]]


class Laboratory:
    """Runs ``hitratio`` and remembers how each run was asked for."""

    def __init__(self, traces: Path) -> None:
        self.lengths = traces / "sharegpt-lengths" / "turn_lengths_cl100k_split.jsonl.gz"
        self.mooncake = traces / "mooncake" / "conversation_trace.jsonl.gz"
        self.agents = traces / "lmcache-agent-trace" / "agent_requests_blk64.jsonl.gz"

    def run(self, *arguments: str) -> tuple[dict[str, Any], str]:
        """The JSON of one command, and the command as a person would type it."""
        began = time.monotonic()
        command = [sys.executable, "-m", "vllm_hitratio_plugin.cli", *arguments, "--json"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise SystemExit(f"accuracy: {shlex.join(arguments)} ended with exit code {done.returncode}")
        shown = shlex.join(["hitratio", *(_shown(argument) for argument in arguments)])
        print(f"{time.monotonic() - began:6.1f} s  {shown}", flush=True)
        result: dict[str, Any] = json.loads(done.stdout)
        return result, shown


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything, write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces", help="folder of the traces")
    traces = parser.parse_args(argv).traces
    if not traces.is_dir():
        print(f"accuracy: no traces at {traces}; name their folder with --traces", file=sys.stderr)
        return 2
    laboratory = Laboratory(traces.resolve())
    sections = [
        paper(laboratory, "paper-1", "head", "vllm"),
        paper(laboratory, "paper-2", "head", "vllm"),
        paper(laboratory, "paper-1", "tail", "builtin"),
        paper(laboratory, "paper-2", "tail", "builtin"),
        service_times(laboratory),
        mooncake(laboratory),
        agents(laboratory),
        nonstationary(laboratory),
        convergence(laboratory),
    ]
    PICTURES.mkdir(parents=True, exist_ok=True)
    for picture in sorted(OUT.rglob("*.png")):
        shutil.copyfile(picture, PICTURES / f"{picture.parent.name}-{picture.name}")
    PAGE.write_text(HEAD + "\n".join(sections))
    return 0


HEAD = """# Accuracy

Made by `make accuracy`; do not edit. Virtual time; errors are of hit ratios (0 to 1), predicted minus observed, over
the same prompts. `reuse_time` is ours, `mean_field` the paper's estimator with everything measured from the same run
(its "posterior"), `prior` the paper's with the think time's true law. The block pool is vLLM's own `KVCacheManager`
where the command says `--pool vllm`, else the same pool reimplemented; the tests show that the two agree hit by hit.

"""


def paper(laboratory: Laboratory, name: str, unhashed: str, pool: str) -> str:
    """One of the paper's experiments under one policy for unhashed blocks."""
    out = OUT / f"{name}-{unhashed}"
    data, command = laboratory.run(
        *("experiment", name, "--turn-lengths", str(laboratory.lengths), "--seeds", "2"),
        *("--pool", pool, "--unhashed", unhashed, "--out", str(out)),
    )
    rows: Table = [
        ["λ0, 1/s", "μ, s", "observed", "reuse_time", "relative", "mean_field", "relative", "prior", "relative"]
    ]
    largest = relative = 0.0
    for result in data["results"]:
        observed, predicted = result["observed"], result["predicted"]
        largest = max(largest, result["largest_error"])
        relative = max(relative, *(abs(run["error"] / run["observed"]) for run in result["runs"]))
        cells = [f"{result['arrival_rate']:g}", f"{result['mean_gap_s']:g}", f"{observed:.4f}"]
        for estimator in ("reuse_time", "mean_field", "mean_field_prior"):
            error = predicted[estimator] - observed
            cells += [f"{error:+.4f}", f"{error / observed:+.1%}"]
        rows.append(cells)
    policy = "go to the head of the free queue (vLLM from 0.24 on)"
    if unhashed == "tail":
        policy = "go to the tail of the free queue (vLLM up to 0.23, the paper's setting)"
    verdict = (
        _bar("`reuse_time` over two seeds", largest, 0.003) + "; " + _bar("relative", relative, 0.02, percent=True)
    )
    return "\n".join(
        [
            f"## {name}, unhashed blocks {policy}\n",
            "5,000 measured conversations after 1,000 of warm-up, real ShareGPT turn lengths, N = 2,275 blocks of 128"
            " tokens; means of two seeds.\n",
            _code(command),
            _table(rows),
            verdict + "\n",
            f"![hit ratio, {name}, {unhashed}](pictures/accuracy/{out.name}-{name}-hit-ratio.png)\n",
        ]
    )


def service_times(laboratory: Laboratory) -> str:
    """Requests that use their blocks for a while: the capacity that ages is N minus the blocks in use."""
    rows: Table = [["service time, mean s", "mean blocks in use", "largest error", "bar", ""]]
    commands = []
    for service, bar in ((2, 0.003), (10, 0.003), (30, 0.006)):
        data, command = laboratory.run(
            *("experiment", "paper-2", "--turn-lengths", str(laboratory.lengths), "--pool", "vllm"),
            *("--unhashed", "head", "--service-time", str(service)),
        )
        commands.append(command)
        runs = [run for result in data["results"] for run in result["runs"]]
        in_use = sum(run["mean_pinned_blocks"] for run in runs) / len(runs)
        largest = max(abs(run["error"]) for run in runs)
        met = "met" if largest <= bar else "missed"
        rows.append([f"{service}", f"{in_use:.0f}", f"{largest:.4f}", f"{bar}", met])
    return "\n".join(
        [
            "## Requests that use their blocks for a while\n",
            "The settings of paper-2; each request uses its blocks for an exponential time.\n",
            _code(*commands),
            _table(rows),
        ]
    )


def mooncake(laboratory: Laboratory) -> str:
    """A production trace, with real arrivals and shared prefixes."""
    capacities = ",".join(map(str, MOONCAKE))
    columns = {}
    commands = []
    for unhashed in ("head", "tail"):
        data, command = laboratory.run(
            "replay", str(laboratory.mooncake), "--capacities", capacities, "--unhashed", unhashed
        )
        columns[unhashed] = data["results"]
        commands.append(command)
    rows: Table = [
        ["N", "observed, head", "reuse_time", "mean_field", "observed, tail", "reuse_time", "mean_field", "reference"]
    ]
    largest = 0.0
    for head, tail in zip(columns["head"], columns["tail"], strict=True):
        cells = [f"{head['capacity_blocks']:,}"]
        for result in (head, tail):
            largest = max(largest, abs(result["error"]))
            mean_field = result["predicted"]["mean_field"] - result["observed"]
            cells += [f"{result['observed']:.4f}", f"{result['error']:+.4f}", f"{mean_field:+.4f}"]
        rows.append([*cells, f"{MOONCAKE[head['capacity_blocks']]:.3f}"])
    return "\n".join(
        [
            "## Mooncake's conversation trace\n",
            "12,031 production requests of one hour, blocks of 512 tokens, real arrivals, shared prefixes, from an"
            " empty cache. The reference is an exact LRU in which partly filled blocks queue at the tail.\n",
            _code(*commands),
            _table(rows),
            _bar("`reuse_time`", largest, 0.005) + "\n",
        ]
    )


def agents(laboratory: Laboratory) -> str:
    """A short trace that is not stationary: reported, whatever it is."""
    data, command = laboratory.run(
        "replay", str(laboratory.agents), "--capacities", "200,500,1000,2000,4000", "--unhashed", "head"
    )
    rows: Table = [["N", "observed", "reuse_time", "mean_field", "prompts larger than N"]]
    for result in data["results"]:
        mean_field = result["predicted"]["mean_field"] - result["observed"]
        cells = [f"{result['capacity_blocks']:,}", f"{result['observed']:.4f}", f"{result['error']:+.4f}"]
        rows.append([*cells, f"{mean_field:+.4f}", f"{result['rejected_prompts']}"])
    return "\n".join(
        [
            "## LMCache's agent trace\n",
            "69 agent runs, 1,619 requests; the runs were recorded days apart, and within one a request follows the"
            " other by seconds.\n",
            _code(command),
            _table(rows),
            "Where it is off, at a cache that a handful of prompts fills, an average rate says little of which run"
            " comes next: displacement comes in steps of one prompt, each a large part of N. The exact shadow, which"
            " needs no rates, is not affected.\n",
        ]
    )


def nonstationary(laboratory: Laboratory) -> str:
    """Sliding windows while the traffic moves."""
    data, command = laboratory.run(
        *("experiment", "nonstationary", "--turn-lengths", str(laboratory.lengths), "--unhashed", "head"),
        *("--out", str(OUT / "nonstationary")),
    )
    rows: Table = [["traffic", "arrivals", "window, s", "windows", "mean error", "largest", "95 % interval covers 0"]]
    coverage = 1.0
    for result in data["results"]:
        coverage = min(coverage, result["coverage"])
        cells = [result["scenario"], f"`{result['arrivals']}`", f"{result['window_s']:g}", f"{result['windows']}"]
        cells += [f"{result['mean_absolute_error']:.4f}", f"{result['largest_error']:.4f}", f"{result['coverage']:.0%}"]
        rows.append(cells)
    return "\n".join(
        [
            "## Traffic that moves\n",
            "In each trailing window, predicted against what the pool hit in it; the interval is 1.96 standard errors"
            " of the difference.\n",
            _code(command),
            _table(rows),
            f"Least coverage {coverage:.0%} (goal 90 %: {'met' if coverage >= 0.9 else 'missed'}).\n",
        ]
    )


def convergence(laboratory: Laboratory) -> str:
    """Theorem 3.1: whole-content LRU tends to its mean-field limit."""
    data, command = laboratory.run("experiment", "convergence", "--out", str(OUT / "convergence"))
    rows: Table = [["N", "observed", "limit", "error", "bound (26)", "mean survival, s", "its deviation, s", "T_C, s"]]
    for result in data["results"]:
        cells = [f"{result['capacity_blocks']:,}", f"{result['observed']:.4f}"]
        cells += [f"{result['predicted']['mean_field']:.4f}", f"{result['error']:+.4f}", f"{result['bound']:.3f}"]
        cells += [f"{result['mean_survival_s']:.2f}", f"{result['survival_deviation_s']:.2f}"]
        rows.append([*cells, f"{result['characteristic_time_s']:.2f}"])
    exponents = data["summary"]
    return "\n".join(
        [
            "## Convergence to the mean field\n",
            "Algorithm 1 (whole contents) with capacity and arrival rate growing together.\n",
            _code(command),
            _table(rows),
            "The bound is that of theorem C.5 on the absolute error, at its best parameters; above 1 it says nothing"
            " (`hitratio estimate --bounds` gives it for any cache).\n",
            f"The error falls like N^{exponents['hit_ratio_error_exponent']:.2f}, the deviation of the survival time"
            f" like N^{exponents['survival_deviation_exponent']:.2f} (theorem C.4: N^-0.5).\n",
            "![convergence](pictures/accuracy/convergence-convergence.png)\n",
        ]
    )


def _bar(what: str, value: float, bar: float, percent: bool = False) -> str:
    shown, limit = (f"{value:.1%}", f"{bar:.0%}") if percent else (f"{value:.4f}", f"{bar}")
    return f"Largest error of {what}: {shown} (bar {limit}: {'met' if value <= bar else 'missed'})"


def _table(rows: Table) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _code(*commands: str) -> str:
    return "".join(f"    {command}\n" for command in commands)


def _shown(argument: str) -> str:
    """Paths as seen from the repository's root."""
    path = Path(argument)
    if not path.is_absolute():
        return argument
    for base, name in ((ROOT, ""), (ROOT.parent, "../")):
        if path.is_relative_to(base):
            return name + str(path.relative_to(base))
    return path.name


if __name__ == "__main__":
    sys.exit(main())

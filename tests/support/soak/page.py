"""docs/soak.md, from what the runs reported."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

INTRODUCTION = """# Soak

Written by `make soak`. Two real servers of vLLM on CPU with a tiny model, 16 clients in a closed loop, which is the
highest rate that two cores sustain: one core for the clients and the API server, one for the engine. The load goes
round in stretches of six seconds: the server with the plugin, the same one with its hooks taken off, and a server
without the plugin. The ratio is that of the first two, since two servers of the very same kind differ by some percent
for as long as they live. The model answers within milliseconds: the plugin's share is larger here than anywhere else.
Settings are the default ones but for a window of 120 s instead of 600, whose history is full within a round.
"""
RUNS = """
| run | commit | minutes | requests | a second | median latency, with over without | 95 % interval | 95th percentile |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
ROUNDS = """
The minutes are those of load, in rounds with fresh servers. Memory is the engine's resident set, in MiB, without and
with the plugin. The index is full within the first minute; the window's history, which may be stretched to six windows,
is not before twelve, and is the growth seen. More than 8 MiB beyond the plain server's would be a failure; that memory
is level after a million conversations is shown in [compatibility.md](compatibility.md).

| round | latency ratio | to the plain server | memory | growth in the second half | index, blocks | errors | counters |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def write(reports: Path, page: Path, bound: float) -> None:
    """Write the page, where there is a report of the main run; that of the control run is told beside it."""
    found = {path.stem: json.loads(path.read_text()) for path in reports.glob("*.json")}
    if "report" not in found:
        return
    runs = (("report", "with the hooks"), ("control", "control: hooks off in both"))
    ratio = found["report"]["latency_ratio"]
    page.write_text(
        INTRODUCTION
        + RUNS
        + "".join(_run(words, found[name]) for name, words in runs if name in found)
        + ROUNDS
        + "".join(_round(number, each) for number, each in enumerate(found["report"]["rounds"], 1))
        + f"\nBound: a median ratio of at most {bound}: {'met' if ratio <= bound else 'missed'} by the median"
        + f"{'' if found['report']['latency_ratio_high'] <= bound else '; its 95 % interval reaches beyond'}.\n"
    )


def _run(words: str, report: dict[str, Any]) -> str:
    interval = f"{report['latency_ratio_low']:.4f} to {report['latency_ratio_high']:.4f}"
    return (
        f"| {words} | {report['commit']} | {report['minutes']:g} | {report['requests']:,} | "
        f"{report['requests_per_second']:.0f} | {report['latency_ratio']:.4f} | {interval} | "
        f"{report['tail_ratio']:.4f} |\n"
    )


def _round(number: int, found: dict[str, Any]) -> str:
    memory, growth = ([value / 2**20 for value in found[name]] for name in ("memory_bytes", "memory_growth_bytes"))
    return (
        f"| {number} | {statistics.median(found['ratios']):.4f} | {found['server_ratio']:.3f} | "
        f"{memory[0]:.0f}, {memory[1]:.0f} | {growth[0]:+.1f}, {growth[1]:+.1f} | {found['index_blocks']:,.0f} | "
        f"{found['errors']} | {'equal' if found['counters_equal'] else 'not equal'} to vLLM's |\n"
    )

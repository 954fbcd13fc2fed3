"""The soak: real servers under the highest load that the cores sustain; latency as a ratio, memory, counters.

    python -m tests.support.soak --minutes 30        (`make soak`)

Two servers are up in each round, one with the plugin and one without, and the load goes round in stretches of 6 s:
the plain server, the other one with its hooks in place, and the same one with its hooks taken off (`switch.py`), in
another order each time. Two servers of the very same kind differ by some percent for as long as they live, so the
latency's ratio is that of the two kinds of stretches of the *same* server; the plain one shows what memory a server
takes by itself, and its latency is told, too. Clients work in a closed loop: the rate is the highest that two cores
sustain, one for clients and the API server, one for the engine. (Left to the kernel, a stretch's latency depends on
where it puts four processes: it varies ten times as much.) The plugin's
settings are the default ones but for a shorter window, whose memory is full within a round.

A lap's figure is the ratio of its stretches' median latencies, the run's is the median over laps, with a bootstrap
interval. `--control` leaves the hooks off in all stretches: how far from 1 the method itself is.

Writes build/soak/report.json (with `--control` control.json) and docs/soak.md from both; exit code 1 where a figure is
out of its bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection
from pathlib import Path

import psutil  # brought by vLLM

from examples.demo.server import HOST
from examples.demo.tiny_model import write_tiny_model
from tests.support.real_server import Server, serve, write_shim
from tests.support.repository import ROOT
from tests.support.soak import page, switch

REPORTS = ROOT / "build" / "soak"
PAGE = ROOT / "docs" / "soak.md"
CLIENTS = 16
STRETCH_S = 6.0
WARM_UP_S = 30.0
CORES = sorted(os.sched_getaffinity(0))[:2]
CAPACITY_BLOCKS = 2275

#: How long a round is, of about.
ROUND_S = 450.0

#: Bounds: the ratio, and how much more memory the second half of a round may take with the plugin than without.
RATIO = 1.02
MEMORY_BYTES = 8 << 20

#: One thread computes: more of them wait for each other on one core.
THREADS = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}

OURS_AND_VLLMS = (
    ("hitratio_prompt_tokens_total", "vllm:prefix_cache_queries_total"),
    ("hitratio_hit_tokens_total", "vllm:prefix_cache_hits_total"),
)


@dataclass
class Side:
    """One of the two servers over a round."""

    server: Server
    memory: list[int] = field(default_factory=list)
    """Resident bytes of the engine's process after each lap."""
    errors: int = 0
    counted: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """What vLLM's counters rose by while the hooks were in place."""

    def engine(self) -> psutil.Process:
        root = psutil.Process(self.server.process.pid)
        return next(each for each in root.children(recursive=True) if "EngineCore" in " ".join(each.cmdline()))

    def pin(self) -> None:
        """The engine's processes to one core, the rest to another."""
        root = psutil.Process(self.server.process.pid)
        for process in (root, *root.children(recursive=True)):
            core = CORES[-1] if "VLLM::" in " ".join(process.cmdline()) else CORES[0]
            for thread in process.threads():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, {core})

    def vllms(self) -> list[float]:
        return [self.server.value(theirs) or 0.0 for _, theirs in OURS_AND_VLLMS]

    def switch(self, on: bool) -> None:
        """Put the hooks in place or take them off; no request is under way."""
        self.engine().send_signal(signal.SIGUSR1 if on else signal.SIGUSR2)
        time.sleep(0.1)


@dataclass
class Round:
    """What one pair of servers did."""

    ratios: list[float]
    """Median latency with the hooks over that without in the same server, by lap."""
    tail_ratios: list[float]
    """The same of the 95th percentile."""
    server_ratio: float
    """With the hooks over the plain server: the median over laps."""
    median_ms: dict[str, float]
    requests: int
    errors: int
    memory_bytes: tuple[int, int]
    """At the end, without and with the plugin."""
    memory_growth_bytes: tuple[int, int]
    """In the second half, without and with the plugin."""
    counters_equal: bool
    degraded: list[str]
    index_blocks: float | None


@dataclass
class Report:
    """What the run found."""

    commit: str
    """What was measured."""
    minutes: float
    control: bool
    requests: int
    requests_per_second: float
    latency_ratio: float
    latency_ratio_low: float
    latency_ratio_high: float
    tail_ratio: float
    rounds: list[Round]
    failures: list[str]


def stretch(side: Side, seed: int, seconds: float) -> list[float]:
    """Conversations of the same seed for some seconds; each request's latency in seconds."""
    latencies: list[float] = []
    lock = threading.Lock()
    ends = time.monotonic() + seconds

    def client(number: int) -> None:
        chooser = random.Random(f"{seed}-{number}")
        connection = HTTPConnection(HOST, side.server.port, timeout=60)
        mine: list[float] = []
        errors = 0
        history: list[int] = []
        while time.monotonic() < ends:
            if not history or len(history) > 1500:
                history = []
            history += chooser.choices(range(256), k=chooser.randint(50, 250))
            body = {"model": side.server.model, "prompt": history, "max_tokens": 1, "temperature": 0}
            began = time.perf_counter()
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            mine.append(time.perf_counter() - began)
            errors += answer.status != 200
        connection.close()
        with lock:
            latencies.extend(mine)
            side.errors += errors

    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(client, number) for number in range(CLIENTS)]:
            done.result()
    return latencies


def watched_stretch(side: Side, seed: int) -> list[float]:
    """A stretch with the hooks in place; what vLLM counts meanwhile is noted."""
    before = side.vllms()
    side.switch(True)
    latencies = stretch(side, seed, STRETCH_S)
    time.sleep(0.2)  # vLLM counts a request a moment after it has answered
    side.switch(False)
    side.counted = [counted + now - then for counted, now, then in zip(side.counted, side.vllms(), before, strict=True)]
    return latencies


def tail(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=20)[-1]


def one_round(number: int, seconds: float, control: bool) -> Round:
    """Two fresh servers; in every other round the plain one is started first."""
    options = ("--num-gpu-blocks-override", str(CAPACITY_BLOCKS + 1))
    ours = ("--hitratio-window", "120", "--hitratio-target", "0.8")
    with tempfile.TemporaryDirectory(prefix="soak-") as name, contextlib.ExitStack() as servers:
        folder = Path(name)
        model = write_tiny_model(folder / "model")
        shim = folder / "shim"
        shim.mkdir()
        paths = [write_shim(shim), switch.write_plugin(folder / "switch")]
        started: dict[bool, Side] = {}
        for plugin in (number % 2 == 1, number % 2 == 0):
            log = folder / f"{plugin}.log"
            server = serve(model, log, *options, *(ours if plugin else ()), paths=paths, plugin=plugin, **THREADS)
            started[plugin] = Side(servers.enter_context(server))
            started[plugin].pin()
        plain, watched = started[False], started[True]
        for side in (plain, watched):
            stretch(side, -1, WARM_UP_S)
        watched.switch(False)
        # What was counted in the warm-up is in vLLM's counters, too.
        watched.counted = watched.vllms()
        kinds: dict[str, Callable[[int], list[float]]] = {
            "plain": lambda lap: stretch(plain, lap, STRETCH_S),
            "off": lambda lap: stretch(watched, lap, STRETCH_S),
            "on": lambda lap: stretch(watched, lap, STRETCH_S) if control else watched_stretch(watched, lap),
        }
        orders = list(itertools.permutations(kinds))
        laps: list[dict[str, list[float]]] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends or len(laps) < 4:
            order = orders[len(laps) % len(orders)]
            laps.append({kind: kinds[kind](len(laps)) for kind in order})
            for side in (plain, watched):
                side.memory.append(int(side.engine().memory_info().rss))
            if len(laps) % 10 == 0:
                medians = {kind: 1000 * statistics.median(latencies) for kind, latencies in laps[-1].items()}
                print(
                    f"soak: round {number + 1} lap {len(laps)}: median {medians['on']:.2f} ms with hooks, "
                    f"{medians['off']:.2f} ms without, {medians['plain']:.2f} ms in the plain server; the engines' "
                    f"memory {watched.memory[-1] >> 20} and {plain.memory[-1] >> 20} MiB",
                    flush=True,
                )
        watched.switch(True)
        with_plugin = watched.server
        with_plugin.wait_for("published", lambda: with_plugin.value(OURS_AND_VLLMS[0][0]) is not None)
        return Round(
            ratios=[statistics.median(lap["on"]) / statistics.median(lap["off"]) for lap in laps],
            tail_ratios=[tail(lap["on"]) / tail(lap["off"]) for lap in laps],
            server_ratio=statistics.median(
                statistics.median(lap["on"]) / statistics.median(lap["plain"]) for lap in laps
            ),
            median_ms={kind: 1000 * statistics.median(statistics.median(lap[kind]) for lap in laps) for kind in kinds},
            requests=sum(len(latencies) for lap in laps for latencies in lap.values()),
            errors=plain.errors + watched.errors,
            memory_bytes=(plain.memory[-1], watched.memory[-1]),
            memory_growth_bytes=(growth(plain.memory), growth(watched.memory)),
            counters_equal=all(
                with_plugin.value(mine) == counted
                for (mine, _), counted in zip(OURS_AND_VLLMS, watched.counted, strict=True)
            ),
            degraded=[
                labels["reason"] for labels, value in with_plugin.samples().get("hitratio_degraded", ()) if value
            ],
            index_blocks=with_plugin.value("hitratio_index_blocks"),
        )


def growth(memory: list[int]) -> int:
    """From the middle to the end, by the medians of a few readings."""
    middle = len(memory) // 2
    return int(statistics.median(memory[-3:]) - statistics.median(memory[middle : middle + 3]))


def report_of(rounds: list[Round], minutes: float, control: bool) -> Report:
    """The run's figures, and which of them are out of bounds."""
    ratios = [ratio for each in rounds for ratio in each.ratios]
    chooser = random.Random(0)
    draws = sorted(statistics.median(chooser.choices(ratios, k=len(ratios))) for _ in range(2000))
    ratio = statistics.median(ratios)
    failures = []
    if ratio > RATIO:
        failures.append(f"the median latency with the plugin is {ratio:.3f} times that without")
    for number, each in enumerate(rounds, 1):
        without, with_plugin = each.memory_growth_bytes
        if with_plugin - max(without, 0) > MEMORY_BYTES:
            failures.append(f"round {number}: memory grew by {with_plugin} bytes, without the plugin by {without}")
        if each.errors:
            failures.append(f"round {number}: {each.errors} requests were not answered with 200")
        if not each.counters_equal:
            failures.append(f"round {number}: the counters differ from vLLM's")
        if each.degraded:
            failures.append(f"round {number}: degraded: {', '.join(each.degraded)}")
    requests = sum(each.requests for each in rounds)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return Report(
        commit=head.stdout.strip() or "unknown",
        minutes=minutes,
        control=control,
        requests=requests,
        requests_per_second=requests / (3 * STRETCH_S * len(ratios)),
        latency_ratio=ratio,
        latency_ratio_low=draws[49],
        latency_ratio_high=draws[1949],
        tail_ratio=statistics.median(ratio for each in rounds for ratio in each.tail_ratios),
        rounds=rounds,
        failures=failures,
    )


def main() -> int:
    """Run, report, and say what is out of bounds."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.soak", description="Latency, memory and counters over a long run."
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--control", action="store_true", help="leave the hooks off in all stretches")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {CORES[0]})
    count = max(1, round(60 * arguments.minutes / ROUND_S))
    rounds = [one_round(number, 60 * arguments.minutes / count, arguments.control) for number in range(count)]
    report = report_of(rounds, arguments.minutes, arguments.control)
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{'control' if report.control else 'report'}.json").write_text(
        json.dumps(asdict(report), indent=2) + "\n"
    )
    page.write(REPORTS, PAGE, RATIO)
    print(
        f"soak: {report.requests} requests in {count} rounds, {report.requests_per_second:.0f}/s; median latency with "
        f"the hooks over that without {report.latency_ratio:.4f} (95 %: {report.latency_ratio_low:.4f} to "
        f"{report.latency_ratio_high:.4f}), 95th percentile {report.tail_ratio:.4f}; "
        f"{sum(each.errors for each in rounds)} errors"
    )
    for number, each in enumerate(rounds, 1):
        without, with_plugin = (growth / 2**20 for growth in each.memory_growth_bytes)
        print(
            f"soak: round {number}: ratio {statistics.median(each.ratios):.4f}, to the plain server "
            f"{each.server_ratio:.3f}; memory in the second half {without:+.1f} MiB without, {with_plugin:+.1f} MiB "
            f"with; counters {'equal' if each.counters_equal else 'not equal'} to vLLM's"
        )
    for failure in report.failures:
        print(f"soak: {failure}", file=sys.stderr)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""The soak: two real servers, one with the plugin, under the same load in turn; latency as a ratio, memory, counters.

    python tests/soak --minutes 30        (`make soak`)

Both servers of a round are up all the time and the load alternates between them in stretches of 3 s, the order
reversed from pair to pair, so that what else the machine does falls on both alike. The server that is started first is
another one in each round: two servers of the very same kind differ by some percent for as long as they live. Clients
work in a closed loop: the rate is the highest that the cores sustain. A pair's figure is the ratio of its stretches'
median latencies, the run's is the mean over the two orders of starting of the median over pairs. `--control` leaves the
plugin out of both: how far from 1 the method itself is.

Writes build/soak/report.json; exit code 1 where a figure is out of its bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "server")]

import psutil  # noqa: E402  (brought by vLLM)
from real_server import HOST, Server, serve, write_shim  # noqa: E402

from examples.demo.tiny_model import write_tiny_model  # noqa: E402

REPORT = ROOT / "build" / "soak" / "report.json"
CLIENTS = 4
STRETCH_S = 3.0
WARM_UP_S = 15.0

#: Rounds are an even number, of about so long.
ROUND_S = 450.0

#: Bounds: the ratio, and how much more memory the second half of a round may take with the plugin than without.
RATIO = 1.02
MEMORY_BYTES = 8 << 20


@dataclass
class Side:
    """One of the two servers over the run."""

    server: Server
    latencies: list[list[float]] = field(default_factory=list)
    """Seconds of each request, by stretch."""
    errors: int = 0
    memory: list[int] = field(default_factory=list)
    """Resident bytes of the engine's process after each stretch."""

    def engine_memory(self) -> int:
        root = psutil.Process(self.server.process.pid)
        engines = [each for each in root.children(recursive=True) if "EngineCore" in " ".join(each.cmdline())]
        return int(engines[0].memory_info().rss)


@dataclass
class Round:
    """What one pair of servers did."""

    plugin_first: bool
    ratios: list[float]
    """Median latency with the plugin over that without, by pair."""
    median_ms: tuple[float, float]
    requests: int
    errors: int
    memory_growth_bytes: tuple[int, int]
    """In the second half, without and with the plugin."""
    counters_equal: bool
    degraded: list[str]


@dataclass
class Report:
    """What the run found."""

    minutes: float
    requests: int
    requests_per_second: float
    latency_ratio: float
    latency_ratio_low: float
    latency_ratio_high: float
    rounds: list[Round]
    failures: list[str]


def stretch(side: Side, seed: int, seconds: float) -> None:
    """Conversations of the same seed for some seconds."""
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
    side.latencies.append(latencies)
    side.memory.append(side.engine_memory())


def finished(without: Side, with_plugin: Side, plugin_first: bool, compared: bool) -> Round:
    """A round's figures."""
    medians = [
        (statistics.median(one), statistics.median(other))
        for one, other in zip(without.latencies, with_plugin.latencies, strict=True)
    ]
    half = len(medians) // 2
    growth = [
        int(statistics.median(side.memory[-2:]) - statistics.median(side.memory[half : half + 2]))
        for side in (without, with_plugin)
    ]
    server = with_plugin.server
    return Round(
        plugin_first=plugin_first,
        ratios=[other / one for one, other in medians],
        median_ms=(
            statistics.median(one for one, _ in medians) * 1000,
            statistics.median(other for _, other in medians) * 1000,
        ),
        requests=sum(map(len, (*without.latencies, *with_plugin.latencies))),
        errors=without.errors + with_plugin.errors,
        memory_growth_bytes=(growth[0], growth[1]),
        counters_equal=not compared
        or all(
            server.value(ours) == server.value(theirs)
            for ours, theirs in (
                ("hitratio_prompt_tokens_total", "vllm:prefix_cache_queries_total"),
                ("hitratio_hit_tokens_total", "vllm:prefix_cache_hits_total"),
            )
        ),
        degraded=[labels["reason"] for labels, value in server.samples().get("hitratio_degraded", ()) if value],
    )


def pooled(rounds: list[Round], chooser: random.Random | None = None) -> float:
    """The run's latency ratio; with a chooser, of a bootstrap sample of rounds and of pairs in them."""
    by_order = []
    for plugin_first in (False, True):
        those = [each.ratios for each in rounds if each.plugin_first is plugin_first]
        if chooser is not None:
            those = [chooser.choices(ratios, k=len(ratios)) for ratios in chooser.choices(those, k=len(those))]
        by_order.append(statistics.median(ratio for ratios in those for ratio in ratios))
    return statistics.mean(by_order)


def report_of(rounds: list[Round], minutes: float) -> Report:
    """The run's figures, and which of them are out of bounds."""
    chooser = random.Random(0)
    draws = sorted(pooled(rounds, chooser) for _ in range(2000))
    ratio = pooled(rounds)
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
    seconds = sum(2 * STRETCH_S * len(each.ratios) for each in rounds)
    return Report(minutes, requests, requests / seconds, ratio, draws[49], draws[1949], rounds, failures)


def one_round(number: int, seconds: float, control: bool) -> Round:
    """Two fresh servers; in even rounds the plain one is started first."""
    plugin_first = number % 2 == 1
    options = ("--hitratio-window", "60", "--hitratio-interval", "2", "--hitratio-target", "0.8")
    with tempfile.TemporaryDirectory(prefix="soak-") as name, contextlib.ExitStack() as servers:
        folder = Path(name)
        model = write_tiny_model(folder / "model")
        shim = folder / "shim"
        shim.mkdir()
        paths = [write_shim(shim)]
        started: dict[bool, Side] = {}
        for plugin in (plugin_first, not plugin_first):
            log = folder / f"{plugin}.log"
            on = plugin and not control
            server = serve(model, log, *(options if on else ()), paths=paths, plugin=on)
            started[plugin] = Side(servers.enter_context(server))
        without, with_plugin = started[False], started[True]
        for side in (without, with_plugin):
            stretch(side, -1, WARM_UP_S)
            side.latencies.clear()
            side.memory.clear()
        ends = time.monotonic() + seconds
        pair = 0
        while time.monotonic() < ends or pair < 4:
            for side in (without, with_plugin) if pair % 2 else (with_plugin, without):
                stretch(side, pair, STRETCH_S)
            pair += 1
            ratio = statistics.median(with_plugin.latencies[-1]) / statistics.median(without.latencies[-1])
            if pair % 20 == 0:
                print(
                    f"soak: round {number + 1} pair {pair}: latency ratio {ratio:.3f}, memory of the engine "
                    f"{without.memory[-1] >> 20} MiB without, {with_plugin.memory[-1] >> 20} MiB with",
                    flush=True,
                )
        if control:
            return finished(without, with_plugin, plugin_first, compared=False)
        watched = with_plugin.server
        tokens = watched.value("vllm:prefix_cache_queries_total")
        watched.wait_for("all published", lambda: watched.value("hitratio_prompt_tokens_total") == tokens)
        return finished(without, with_plugin, plugin_first, compared=True)


def main() -> int:
    """Run, report, and say what is out of bounds."""
    parser = argparse.ArgumentParser(
        prog="python tests/soak", description="Latency, memory and counters over a long run."
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--control", action="store_true", help="leave the plugin out of both servers")
    arguments = parser.parse_args()
    count = max(2, 2 * round(60 * arguments.minutes / ROUND_S / 2))
    rounds = [one_round(number, 60 * arguments.minutes / count, arguments.control) for number in range(count)]
    report = report_of(rounds, arguments.minutes)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(asdict(report), indent=2) + "\n")
    print(
        f"soak: {report.requests} requests in {count} rounds, {report.requests_per_second:.0f}/s; latency with the "
        f"plugin over that without {report.latency_ratio:.3f} ({report.latency_ratio_low:.3f} to "
        f"{report.latency_ratio_high:.3f}); {sum(each.errors for each in rounds)} errors"
    )
    for number, each in enumerate(rounds, 1):
        without, with_plugin = (growth / 2**20 for growth in each.memory_growth_bytes)
        print(
            f"soak: round {number}: ratio {statistics.median(each.ratios):.3f}, memory in the second half "
            f"{without:+.1f} MiB without, {with_plugin:+.1f} MiB with; counters "
            f"{'equal' if each.counters_equal else 'not equal'} to vLLM's"
        )
    for failure in report.failures:
        print(f"soak: {failure}", file=sys.stderr)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())

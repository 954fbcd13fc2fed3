"""``hitratio doctor`` against a real HTTP server that serves what the plugin, or vLLM alone, would."""

import json
import os
import pty
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.cli import main
from vllm_hitratio_plugin.cli.doctor import examine
from vllm_hitratio_plugin.exporter.server import Exporter
from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.metrics.reader import parse
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.snapshot import Snapshot

PLAIN = """\
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 1.0e+06
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 150000.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="2049"} 1.0
"""


def taken(capacity: int = 400, **facts: object) -> Snapshot:
    """Documents of 20 blocks, asked about at random: 50 of them, so 1,000 blocks and the questions."""
    monitor = Monitor(block_size=16, capacity_blocks=capacity, target=0.5)
    pool = BlockLRU(capacity, 16)
    rng = Random(1)
    for number in range(1500):
        document = rng.randrange(50)
        ids = [*range(100 * document, 100 * document + 20), 10_000 + number]
        hit = pool.admit(number, 16 * 21 + 3, ids)
        assert hit is not None
        pool.release(number)
        monitor.admit(Access(number, number, 16 * 21 + 3, ids, 16 * hit, in_use_blocks=0))
        monitor.release(number, number)
    estimate = monitor.refresh(1500)
    known: dict[str, object] = {"block_bytes": 1 << 20, "counters": monitor.counters, "estimate": estimate}
    return Snapshot("tiny", "0", "0.1.0", "0.32.0", "head", 1.7e9, capacity, 16, **known | {"modelled": True} | facts)  # type: ignore[arg-type]


def page(*snapshots: Snapshot) -> str:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: snapshots))
    return generate_latest(registry).decode()


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server of the given pages, by path; returns its base address."""
    servers = []

    def start(**pages: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path.strip("/"))
                self.send_response(404 if body is None else 200)
                self.end_headers()
                self.wfile.write((body or "").encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("path", ["", "/", "/metrics"])
def test_a_server_with_something_to_do(serve: Serve, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", serve(metrics=page(taken())) + path]) == 1
    out = capsys.readouterr().out
    assert out.index("[WARNING] capacity-bound") < out.index("Evidence") < out.index("What to do")
    assert "tiny, engine 0" in out
    assert "The target of 50 % needs" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 110


def test_a_healthy_server(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", serve(metrics=page(taken(capacity=4000)))]) == 0
    assert "[OK] healthy" in capsys.readouterr().out


def test_json_names_rules_and_code(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", serve(metrics=page(taken()))]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["code"] == 1
    (engine,) = report["engines"]
    assert (engine["model_name"], engine["engine"], engine["plugin"]) == ("tiny", "0", True)
    assert engine["findings"][0]["rule"] == "capacity-bound"
    assert engine["findings"][0]["evidence"]


def test_the_exporter_and_metrics_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    exporter = Exporter("127.0.0.1", 0, taken)
    try:
        for path in ("", "/hitratio", "/hitratio.json", "/metrics"):
            assert main(["doctor", f"127.0.0.1:{exporter.port}{path}"]) == 1
            assert "in the last 10 min had been cached and were evicted" in " ".join(capsys.readouterr().out.split())
    finally:
        exporter.close()


def test_case_17_a_plain_vllm_page(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", serve(metrics=PLAIN)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "[INFO] without-plugin" in out
    assert "15 % of 1,000,000 prompt tokens" in out
    assert "What can't be known from this page" in out
    assert "[OK]" not in out
    assert "--enable-prefix-caching" not in out
    off = PLAIN.replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')
    assert main(["doctor", serve(metrics=off)]) == 1
    assert "[CRITICAL] prefix-caching-off" in capsys.readouterr().out


def test_a_fleet_is_looked_at_together(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    def engine(name: str) -> Snapshot:
        one = taken(capacity=4000)
        assert one.counters is not None
        return replace(one, engine=name, counters=replace(one.counters, follow_up_turns=1000, unmatched_turns=500))

    urls = [serve(metrics=page(engine("0"))), serve(metrics=page(engine("1")))]
    assert main(["doctor", *urls]) == 1
    out = capsys.readouterr().out
    assert "tiny, all engines" in out
    assert "Over 2 engines of tiny, 50 % of follow-up turns" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["127.0.0.1:9"], "can't be reached"),
        (["ftp://127.0.0.1/metrics"], "is not an address of a server"),
        (["http://"], "is not an address of a server"),
        (["http://[::1"], "is not an address of a server"),
        (["http://127.0.0.1:99999"], "is not an address of a server"),
        (["127.0.0.1:9", "--timeout", "1e300"], "must be at most 86,400 s"),
        (["127.0.0.1:9", "--watch", "1e300"], "must be at most 86,400 s"),
        ([], "the following arguments are required: URL"),
        (["127.0.0.1:9", "--watch", "-3"], "must be a positive number"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_those_that_answer_are_shown_though_one_does_not(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    urls = ["127.0.0.1:9", serve(metrics=page(taken()))]
    assert main(["doctor", *urls]) == 2
    captured = capsys.readouterr()
    assert "[WARNING] capacity-bound" in captured.out
    assert captured.err.startswith("hitratio doctor: http://127.0.0.1:9/")
    assert captured.err.count("\n") == 1
    assert main(["doctor", "--json", *urls]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["code"] == 2
    assert (len(report["engines"]), len(report["failures"])) == (1, 1)


@pytest.mark.parametrize("opening", [b"HTTP/1.0 200 OK\r\n\r\n", b""])
def test_the_timeout_is_for_the_whole_answer(opening: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    def drip() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(opening)
                while not over.wait(0.05):
                    connection.sendall(b"x")

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, daemon=True).start()
        started = time.monotonic()
        assert main(["doctor", f"127.0.0.1:{listener.getsockname()[1]}", "--timeout", "0.5"]) == 2
        assert time.monotonic() - started < 3
        over.set()
    assert "can't be read: timed out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ({"metrics": "# TYPE up gauge\nup 1\n"}, "neither hitratio_* nor vllm:* metrics"),
        ({"metrics": "<html>hello</html>"}, "neither hitratio_* nor vllm:* metrics"),
        ({"metrics": '{"half": '}, "neither hitratio_* nor vllm:* metrics"),
        ({}, "has no such page"),
    ],
)
def test_a_server_that_is_something_else(
    serve: Serve, pages: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", serve(**pages)]) == 2
    assert words in capsys.readouterr().err


def on_a_terminal(arguments: list[str], **environment: str) -> str:
    """What the command prints on a pseudo-terminal."""
    main_end, other_end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "vllm_hitratio_plugin.cli", *arguments],
        stdout=other_end,
        env={**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, **environment},
    ) as process:
        os.close(other_end)
        printed = b""
        while True:
            try:
                part = os.read(main_end, 65536)
            except OSError:
                break
            if not part:
                break
            printed += part
        process.wait()
    os.close(main_end)
    return printed.decode()


def test_colour_is_for_terminals_and_can_be_refused(serve: Serve) -> None:
    url = serve(metrics=page(taken()))
    assert "\x1b[1;33;7m WARNING \x1b[0m" in on_a_terminal(["doctor", url])
    assert "\x1b" not in on_a_terminal(["doctor", url], NO_COLOR="1")


def test_watch_looks_again(serve: Serve) -> None:
    pages = {"metrics": PLAIN}
    url = serve(**pages)
    with subprocess.Popen(
        [sys.executable, "-m", "vllm_hitratio_plugin.cli", "doctor", url, "--watch", "0.2", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.terminate()
    assert [look["engines"][0]["findings"][0]["rule"] for look in looks] == ["without-plugin"] * 3


def test_a_second_look_is_about_the_time_in_between() -> None:
    later = PLAIN.replace("1.0e+06", "1.1e+06").replace("150000.0", "155000.0")
    report = examine({"url": parse(later, 60.0)}, {"url": parse(PLAIN, 0.0)})
    evidence = report.engines[0].findings[0].evidence
    assert "5 % of 100,000 prompt tokens were served from the cache since the last look." in evidence

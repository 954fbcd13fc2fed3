"""Real vLLM servers on free ports, gone when the block is left; and what is asked of them over HTTP."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from examples.demo.server import HOST, OFFLINE, START_TIMEOUT, free_port

BLOCK_SIZE = 32
CAPACITY = 120

Samples = dict[str, list[tuple[dict[str, str], float]]]


@dataclass
class Server:
    model: str
    port: int
    exporter_port: int
    log: Path
    process: subprocess.Popen[bytes]

    def get(self, path: str, port: int | None = None) -> str:
        with urllib.request.urlopen(f"http://{HOST}:{port or self.port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def samples(self, port: int | None = None) -> Samples:
        """Everything on /metrics by sample name; a page that Prometheus could not parse raises."""
        found: Samples = {}
        for family in text_string_to_metric_families(self.get("/metrics", port)):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def value(self, name: str, port: int | None = None, **labels: str) -> float | None:
        """The one sample of that name and labels; None where there is none."""
        found = [value for those, value in self.samples(port).get(name, []) if labels.items() <= those.items()]
        assert len(found) <= 1, f"{name} {labels} is there {len(found)} times"
        return found[0] if found else None

    def pages_of_one_refresh(self, *ports: int | None) -> list[Samples]:
        """A page of each port, all of the same snapshot: one page before a refresh and one after it may differ."""
        pages: list[Samples] = []

        def alike() -> bool:
            pages[:] = [self.samples(port) for port in ports]
            times = [page.get("hitratio_last_fit_timestamp_seconds") for page in pages]
            return times[0] is not None and all(each == times[0] for each in times)

        self.wait_for("pages of one refresh", alike)
        return pages

    def wait_until_counted(self, ours: int, vllms: int | None = None, port: int | None = None) -> None:
        """Both have counted: the plugin that many requests, vLLM as many finished ones (or ``vllms``).

        Each counts a moment after the answer, on its own.
        """

        def counted() -> bool:
            page = self.samples(port)
            totals = [
                sum(value for _, value in page.get(name, ()))
                for name in ("hitratio_requests_total", "vllm:request_success_total")
            ]
            return totals == [ours, ours if vllms is None else vllms]

        self.wait_for(f"{ours} requests counted", counted)

    def wait_for(self, what: str, seen: Callable[[], bool], seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended: {self.tail()}"
            if seen():
                return
            time.sleep(0.2)
        raise AssertionError(f"not within {seconds} s: {what}\n{self.tail()}")

    def complete(self, prompt: list[int], **more: object) -> int:
        """POST one completion of one token; the HTTP status."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": 1, "temperature": 0, **more}
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def drive(self, conversations: int, turns: int = 4, seed: int = 1) -> int:
        """Multi-turn conversations, some twenty under way and six requests at a time; returns the requests sent.

        Every answer has to be 200.
        """
        chooser = random.Random(seed)
        waiting = [[chooser.randrange(256) for _ in range(turns * 150)] for _ in range(conversations)]
        under_way: list[tuple[list[int], int, int]] = []
        prompts = []
        while waiting or under_way:
            if waiting and len(under_way) < 20:
                under_way.append((waiting.pop(), 0, 0))
            tokens, turn, size = under_way.pop(chooser.randrange(len(under_way)))
            size += chooser.randint(20, 150)
            prompts.append(tokens[:size])
            if turn + 1 < turns:
                under_way.append((tokens, turn + 1, size))
        with ThreadPoolExecutor(6) as pool:
            statuses = list(pool.map(self.complete, prompts))
        assert statuses == [200] * (conversations * turns)
        return len(statuses)

    def lines(self) -> list[str]:
        """What our logger wrote."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if "hitratio: " in line]

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def command(model: Path, port: int, *options: str) -> list[str]:
    """`vllm serve`, by its module: the CPU distribution's own command does not work."""
    return [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model)),
        *("--load-format", "dummy", "--enforce-eager", "--block-size", str(BLOCK_SIZE)),
        *("--num-gpu-blocks-override", str(CAPACITY + 1), "--max-model-len", "2048"),
        *("--host", HOST, "--port", str(port), "--disable-uvicorn-access-log", *options),
    ]


def environment(extra: dict[str, str], paths: Sequence[Path]) -> dict[str, str]:
    # Nor how loud other tests want vLLM: what the server's log says is looked at here.
    ours = ("HITRATIO_", "PROMETHEUS_", "VLLM_LOGGING_LEVEL")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([*map(str, paths), *filter(None, [clean.get("PYTHONPATH")])])
    return clean | OFFLINE | extra | {"PYTHONPATH": path}


def write_shim(folder: Path) -> Path:
    """Metadata under the name `vllm`, for which the command asks, where the CPU distribution does not have it.

    The platform is told from the version's suffix.
    """
    import vllm

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm")
        return folder
    version = f"{vllm.__version__.split('+')[0]}+cpu"
    info = folder / f"vllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    return folder


@contextlib.contextmanager
def serve(
    model: Path, log: Path, *options: str, paths: Sequence[Path] = (), plugin: bool = True, **env: str
) -> Iterator[Server]:
    """Start a server, wait until it is healthy, and end its whole process group."""
    port, exporter_port = free_port(), free_port()
    if plugin:
        options = ("--plugin", "hitratio", "--hitratio-port", str(exporter_port), *options)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(model, port, *options),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(env, paths),
            start_new_session=True,
        )
    server = Server(str(model), port, exporter_port, log, process)
    try:
        server.wait_for("healthy", lambda: _healthy(server), START_TIMEOUT)
        yield server
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the process group: ask, then kill; no process of it is left."""
    for number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 20.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            process.poll()
            if not _alive(process.pid):
                return
            time.sleep(0.05)
    raise AssertionError("processes of the server are left")


def _alive(group: int) -> bool:
    import psutil  # brought by vLLM

    for each in psutil.process_iter(["pid", "status"]):
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if os.getpgid(each.info["pid"]) == group and each.info["status"] != psutil.STATUS_ZOMBIE:
                return True
    return False


def _healthy(server: Server) -> bool:
    try:
        server.get("/health")
    except (urllib.error.URLError, OSError):
        return False
    return True

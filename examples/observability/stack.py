"""Prometheus and Alertmanager on loopback for as long as a ``with`` block lasts."""

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0


class StackError(Exception):
    """Prometheus or Alertmanager is not installed or does not start; the message is one sentence."""


@dataclass(frozen=True)
class Tools:
    """Paths of the programs."""

    prometheus: str
    promtool: str
    alertmanager: str


def find_tools() -> Tools:
    """Find the programs; raises :class:`StackError` if one is not installed."""
    found = {}
    for role, names in {
        "prometheus": ("prometheus",),
        "promtool": ("promtool",),
        # Debian's name and the usual one.
        "alertmanager": ("prometheus-alertmanager", "alertmanager"),
    }.items():
        path = next((path for path in map(shutil.which, names) if path), None)
        if path is None:
            raise StackError(
                f"{role} is not installed: apt-get install prometheus prometheus-alertmanager, or put it on PATH"
            )
        found[role] = path
    return Tools(**found)


@dataclass(frozen=True)
class Stack:
    """A running Prometheus and Alertmanager."""

    prometheus_url: str
    alertmanager_url: str

    def query(self, expr: str, at: float | None = None) -> list[dict[str, Any]]:
        """Result of an instant query; raises :class:`StackError` with Prometheus' message on an error."""
        moment = {} if at is None else {"time": f"{at:.3f}"}
        answer = self._get("query", {"query": expr, **moment})
        return list(answer["data"]["result"])

    def series(self, expr: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Result of a range query."""
        answer = self._get("query_range", {"query": expr, "start": f"{start}", "end": f"{end}", "step": f"{step}"})
        return list(answer["data"]["result"])

    def label_values(self, label: str, match: str) -> list[str]:
        """Values of a label among matching series."""
        return list(self._get(f"label/{label}/values", {"match[]": match})["data"])

    def alerts(self) -> list[dict[str, Any]]:
        """Active alerts of Alertmanager."""
        return list(_json(f"{self.alertmanager_url}/api/v2/alerts?active=true"))

    def version(self) -> str:
        """Version of Prometheus."""
        return str(_json(f"{self.prometheus_url}/api/v1/status/buildinfo")["data"]["version"])

    def _get(self, what: str, parameters: Mapping[str, str]) -> Any:
        body = urllib.parse.urlencode(parameters)
        answer = _json(f"{self.prometheus_url}/api/v1/{what}?{body}")
        if answer["status"] != "success":
            raise StackError(f"{answer['errorType']}: {answer['error']} in {parameters.get('query', what)}")
        return answer


@contextlib.contextmanager
def running(
    folder: Path,
    targets: Sequence[str],
    rules: str,
    *,
    interval: str = "5s",
    metrics_path: str = "/metrics",
    ports: tuple[int, int] = (0, 0),
) -> Iterator[Stack]:
    """Scrape `targets`, evaluate `rules` and send alerts; all files are below `folder`.

    Args:
        folder: For configuration, logs and data; data found in ``folder/prometheus`` is served as well.
        targets: ``host:port``.
        rules: Content of a rules file.
        interval: Interval of scrapes and evaluations.
        metrics_path: Path of all targets.
        ports: Ports of Prometheus and Alertmanager; 0: any free one.

    Raises :class:`StackError`.
    """
    tools = find_tools()
    folder.mkdir(parents=True, exist_ok=True)
    prometheus_port, alertmanager_port = (port or free_port() for port in ports)
    stack = Stack(f"http://{HOST}:{prometheus_port}", f"http://{HOST}:{alertmanager_port}")
    (folder / "rules.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(_configuration(targets, alertmanager_port, interval, metrics_path))
    (folder / "alertmanager.yml").write_text(_ALERTMANAGER)
    commands = {
        "prometheus": [
            tools.prometheus,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address={HOST}:{prometheus_port}",
            "--storage.tsdb.retention.time=30d",
        ],
        "alertmanager": [
            tools.alertmanager,
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address={HOST}:{alertmanager_port}",
            "--cluster.listen-address=",
        ],
    }
    with contextlib.ExitStack() as processes:
        started = {name: processes.enter_context(_process(command, folder, name)) for name, command in commands.items()}
        for name, url in (("prometheus", stack.prometheus_url), ("alertmanager", stack.alertmanager_url)):
            _wait_until_ready(name, f"{url}/-/ready", started[name], folder / f"{name}.log")
        yield stack


def hurried(rules: str, factor: float = 15.0) -> str:
    """The same rules on a faster clock: every window and every wait divided by `factor`.

    Names of recorded series keep the windows of production. A window is at least 15 s long.
    """

    def shorter(match: re.Match[str]) -> str:
        seconds = int(match["count"]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match["unit"]] / factor
        least = 15 if match["open"] == "[" else 0
        return f"{match['open']}{max(round(seconds), least)}s{match['close']}"

    windows = re.sub(r"(?P<open>\[)(?P<count>\d+)(?P<unit>[smhd])(?P<close>\])", shorter, rules)
    waits = re.sub(
        r"(?m)(?P<open>^ +(?:keep_firing_)?for: )(?P<count>\d+)(?P<unit>[smhd])(?P<close>)$", shorter, windows
    )
    return re.sub(r"(?m)^( +interval: )\w+$", r"\g<1>1s", waits)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


_ALERTMANAGER = """\
route:
  receiver: nobody
  group_by: [alertname, model_name, instance, engine]
  group_wait: 1s
  group_interval: 1s
receivers:
  - name: nobody
"""


def _configuration(targets: Sequence[str], alertmanager_port: int, interval: str, metrics_path: str) -> str:
    listed = ", ".join(f'"{target}"' for target in targets)
    return f"""\
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
  evaluation_interval: {interval}
rule_files: [rules.yml]
alerting:
  alertmanagers:
    - static_configs:
        - targets: ["{HOST}:{alertmanager_port}"]
scrape_configs:
  - job_name: vllm
    metrics_path: {metrics_path}
    static_configs:
      - targets: [{listed}]
"""


@contextlib.contextmanager
def _process(command: Sequence[str], folder: Path, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder / f"{name}.log").open("wb") as log:
        # A session of its own: on Ctrl-C we stop the programs ourselves, in order.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(name: str, url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        if process.poll() is not None:
            raise StackError(f"{name} ended with code {process.returncode}; the last line of {log}: {_last_line(log)}")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        if time.monotonic() > deadline:
            raise StackError(f"{name} is not ready after {START_TIMEOUT:.0f} s, see {log}")
        time.sleep(0.1)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "(empty)"


def _json(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        # The body of a 400 says what is wrong with a query.
        return json.load(error)

"""A real Prometheus and Alertmanager: queries return data; alerts arrive, name the engine, and end."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from examples.observability.stack import Stack, StackError, find_tools, hurried, running
from tests.grafana.grafana_queries import GRAFANA, GRAFANA_ALERTS, PAGES, RECORDED, expressions, filled, panels
from tests.grafana.plugin_history import Replica, history
from tests.grafana.synthetic_engines import Engine, text

RULES = (GRAFANA / "prometheus" / "rules.yml").read_text()
PATIENCE = 90.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def tools() -> None:
    try:
        find_tools()
    except StackError as error:
        pytest.skip(str(error))


class Page:
    """Engines on a clock of their own, served as a target of Prometheus."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = engines
        self._lock = threading.Lock()
        self._time = time.time()
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = page.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def text(self) -> str:
        with self._lock:
            now = time.time()
            for engine in self.engines:
                engine.advance(now, now - self._time)
            self._time = now
            return text(self.engines)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def faulty() -> Engine:
    return Engine(engine="1", seed=2)


@pytest.fixture(scope="module")
def backfilled() -> float:
    """The end of the backfilled history, Unix time."""
    return time.time()


@pytest.fixture(scope="module")
def stack(tools: None, faulty: Engine, backfilled: float, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Half an hour of the plugin's own exporter, backfilled, and two engines that are scraped from now on."""
    folder = tmp_path_factory.mktemp("stack")
    replicas = [Replica("10.0.0.1:8000", loaded=0.2), Replica("10.0.0.2:8000", seed=2, rate=1.1)]
    (folder / "history.txt").write_text(history(replicas, backfilled, 0.5))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "history.txt", folder / "prometheus"],
        check=True,
        capture_output=True,
    )
    page = Page([Engine(), faulty])
    try:
        with running(folder, [page.address], hurried(RULES, 60), interval="1s") as stack:
            yield stack
    finally:
        page.close()


def wait_for(what: str, found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        result = found()
        if result:
            return result
        time.sleep(0.5)
    pytest.fail(f"no {what} within {PATIENCE:.0f} s")


PANELS = [(page["uid"], panel) for page in PAGES for panel in panels(page)]


@pytest.mark.parametrize(("uid", "panel"), PANELS, ids=[f"{uid}-{panel['title']}" for uid, panel in PANELS])
def test_every_panel_has_data(stack: Stack, backfilled: float, uid: str, panel: Any) -> None:
    """From the plugin's own exporter: it exports what the panels query."""
    for query in expressions(panel):
        expr = filled(query).replace('instance=~".+"', 'instance=~"10[.].+"')
        assert stack.query(expr, at=backfilled - 5), expr


def test_variables_have_values(stack: Stack) -> None:
    for label, value in (("job", "vllm"), ("model_name", "qwen3-8b"), ("instance", "10.0.0.1:8000"), ("engine", "0")):
        assert value in stack.label_values(label, "hitratio_build_info")


@pytest.mark.parametrize("rule", GRAFANA_ALERTS, ids=lambda rule: rule["title"])
def test_grafanas_queries_run_where_no_rules_do(stack: Stack, rule: Any) -> None:
    assert isinstance(stack.query(rule["data"][0]["model"]["expr"]), list)


def test_every_recorded_series_is_recorded(stack: Stack) -> None:
    missing = wait_for(
        "recorded series",
        lambda: [None] if all(stack.query(name) for name in RECORDED) else [],
    )
    assert missing == [None]


def test_healthy_engines_are_left_alone(stack: Stack) -> None:
    wait_for("evaluated alert", lambda: stack.query("engine:hitratio_divergence:ratio_rate1h"))
    assert [alert["labels"]["alertname"] for alert in stack.alerts()] == []


def test_a_fault_is_paged_by_name_and_ends(stack: Stack, faulty: Engine) -> None:
    faulty.loss = lambda now: 0.6
    [alert] = wait_for("alert", stack.alerts)
    assert alert["labels"]["alertname"] == "HitRatioBelowPrediction"
    assert alert["labels"]["engine"] == "1", "the faulty one, not its neighbour"
    assert alert["labels"]["model_name"] == "qwen3-8b"
    assert alert["labels"]["instance"].startswith("127.0.0.1:")
    assert alert["labels"]["severity"] == "warning"
    assert alert["annotations"]["summary"].startswith("Engine 1 of qwen3-8b on 127.0.0.1:")
    assert "%" in alert["annotations"]["description"]
    assert alert["annotations"]["runbook_url"].endswith("/HitRatioBelowPrediction.md")
    assert "var-engine=1" in alert["annotations"]["dashboard_url"]
    faulty.loss = lambda now: 0.0
    wait_for("end of the alert", lambda: not stack.alerts())


def test_hurried_rules_differ_in_time_only() -> None:
    quick = hurried(RULES, 60)
    assert quick != RULES
    assert quick.count("\n") == RULES.count("\n")
    assert "[1h]" not in quick
    assert "for: 6h" not in quick
    assert "for: 0s" in quick

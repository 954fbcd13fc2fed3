"""``hitratio doctor`` on pages that real deployments put in front of an engine, over HTTP; cases 23, 24, 29 and 35."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.example_snapshots import page, snapshot
from vllm_hitratio_plugin.cli import main

PAGES = Path(__file__).parent / "pages"

Doctor = Callable[[str], tuple[dict[str, Any], str]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Iterator[Doctor]:
    """The report of a server with that page of metrics: for programs, and as text in one line."""
    servers = []

    def run(text: str) -> tuple[dict[str, Any], str]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/metrics"
                self.send_response(200 if found else 404)
                self.end_headers()
                self.wfile.write(text.encode() if found else b"")

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        code = main(["doctor", "--json", url])
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert main(["doctor", url]) == code == report["code"]
        return report, " ".join(capsys.readouterr().out.split())

    yield run
    for server in servers:
        server.shutdown()
        server.server_close()


def stored(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text()


def test_case_23_the_tokens_of_a_cache_with_several_groups(doctor: Doctor) -> None:
    _, text = doctor(stored("hybrid-tokens"))
    assert "The cache holds 11,985 blocks, 1,534,208 tokens." in text
    assert "47,9" not in text


@pytest.mark.parametrize("name", ["two-replicas", "ray"])
def test_case_24_replicas_that_differ_in_other_labels(doctor: Doctor, name: str) -> None:
    report, text = doctor(stored(name))
    assert [engine["labels"] for engine in report["engines"]] == [
        {"ReplicaId": "3r4e76ag", "WorkerId": "6f8b"},
        {"ReplicaId": "9zzz", "WorkerId": "7a11"},
    ]
    assert "qwen, engine 0, ReplicaId 9zzz, WorkerId 7a11, http://" in text
    assert "10 % of 200,000 prompt tokens" in text
    assert "90 % of 100,000 prompt tokens" in text
    (together,) = report["fleet"]["qwen"]
    assert together["summary"].startswith("36.7 % of 300,000 prompt tokens of 2 engines")


def test_case_24_with_the_plugin(doctor: Doctor) -> None:
    """A federation of two replicas that are both engine 0 of one model."""

    def behind(pod: str, prompts: int) -> list[str]:
        lines = page(snapshot(prompts)).splitlines(keepends=True)
        return [line.replace("{", f'{{pod="{pod}",', 1) for line in lines if not line.startswith("#")]

    report, text = doctor("".join(behind("a", 2000) + behind("b", 700)))
    assert [engine["labels"] for engine in report["engines"]] == [{"pod": "a"}, {"pod": "b"}]
    assert "tiny, engine 0, pod a" in text
    assert "tiny, engine 0, pod b" in text


def test_each_configuration_goes_to_its_own_engine(doctor: Doctor) -> None:
    config = (
        '# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{ReplicaId="3r4e76ag",engine="0",'
        'num_gpu_blocks="101",enable_prefix_caching="True"} 1.0\n'
        'vllm:cache_config_info{ReplicaId="9zzz",engine="0",num_gpu_blocks="201",enable_prefix_caching="True"} 1.0\n'
    )
    report, _ = doctor(stored("two-replicas") + config)
    evidence = [" ".join(engine["findings"][0]["evidence"]) for engine in report["engines"]]
    assert ["holds 100 blocks" in words for words in evidence] == [True, False]
    assert ["holds 200 blocks" in words for words in evidence] == [False, True]
    # Without counters, the configurations alone are two engines.
    assert [engine["labels"]["ReplicaId"] for engine in doctor(config)[0]["engines"]] == ["3r4e76ag", "9zzz"]
    # A configuration that could be either's is nobody's.
    nobodys = config.replace('ReplicaId="3r4e76ag",', "").replace('ReplicaId="9zzz",', "")
    assert "The cache holds" not in doctor(stored("two-replicas") + nobodys)[1]


def test_case_29_a_front_end_with_vllms_own_metrics_alone(doctor: Doctor) -> None:
    report, text = doctor(stored("openmetrics"))
    (engine,) = report["engines"]
    (finding,) = engine["findings"]
    assert (finding["rule"], engine["plugin"]) == ("without-plugin", False)
    assert finding["confidence"] <= 0.5
    where = finding["evidence"][0]
    assert "/hitratio.json or http://127.0.0.1:" in where
    assert "/metrics. Not looked at: http://127.0.0.1:9577" in where
    assert "25 % of 200,000 prompt tokens" in text
    assert "port 9577, or the next free one" in text


def test_case_35_the_plugin_is_on_and_nothing_can_be_shown(doctor: Doctor) -> None:
    report, text = doctor(page() + stored("openmetrics").replace("# EOF\n", ""))
    (engine,) = report["engines"]
    (finding,) = engine["findings"]
    assert (finding["rule"], finding["severity"], engine["plugin"]) == ("plugin-degraded", "warning", True)
    assert "The plugin is on, but degraded (snapshot)" in text
    assert "finds no recent snapshot of any engine" in text
    assert "25 % of 200,000 prompt tokens" in text
    assert "install vllm-hitratio-plugin" not in text
    # A page with nothing else.
    (engine,) = doctor(page())[0]["engines"]
    assert engine["findings"][0]["rule"] == "plugin-degraded"


def test_an_engine_that_has_ended_is_not_without_the_plugin(doctor: Doctor) -> None:
    """vLLM's counters of data-parallel engines that were scaled down stay on its page."""
    gone = stored("openmetrics").replace("# EOF\n", "").replace('engine="0"', 'engine="1"')
    report, text = doctor(page(snapshot()) + gone.replace('model_name="m"', 'model_name="tiny"'))
    assert [(engine["engine"], engine["plugin"]) for engine in report["engines"]] == [("0", True), ("1", False)]
    assert "but not this one: it has ended, or its plugin has" in text
    assert "install vllm-hitratio-plugin" not in text


def test_nobody_is_asked_on_another_port(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter's port is named, not tried: a command only asks the addresses that it is given."""
    asked: list[Any] = []
    connect = socket.socket.connect

    def watched(self: socket.socket, address: Any) -> None:
        asked.append(address[1])
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", watched)
    doctor(stored("openmetrics"))
    assert asked
    assert 9577 not in asked

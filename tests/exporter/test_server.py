"""The engine's own exporter: its pages, and the clients that it sheds."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.example_snapshots import snapshot
from vllm_hitratio_plugin.exporter import server
from vllm_hitratio_plugin.exporter.server import Exporter
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.snapshot_json import from_json

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def shown() -> Snapshot:
    return snapshot(300)


@pytest.fixture
def exporter(shown: Snapshot) -> Iterator[Exporter]:
    made = Exporter(HOST, 0, lambda: shown)
    yield made
    made.close()


def fetch(exporter: Exporter, path: str, accept: str = "*/*") -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://{HOST}:{exporter.port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def raw(exporter: Exporter, request: bytes) -> bytes:
    with socket.create_connection((HOST, exporter.port), timeout=10) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_metrics(exporter: Exporter) -> None:
    status, kind, body = fetch(exporter, "/metrics?name[]=anything")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    assert 'hitratio_requests_total{engine="0",model_name="tiny"} 300.0' in body
    assert fetch(exporter, "/metrics", "application/openmetrics-text; version=1.0.0")[2].endswith("# EOF\n")


def test_the_snapshot_as_json(exporter: Exporter, shown: Snapshot) -> None:
    status, kind, body = fetch(exporter, "/hitratio")
    assert (status, kind) == (200, "application/json")
    assert from_json(body) == shown
    assert exporter.url == f"http://{HOST}:{exporter.port}"
    assert json.loads(body)["engine"] == "0"


@pytest.mark.parametrize("path", ["/", "/metrics/", "/etc/passwd", "/../../etc/passwd", "/metricsx", "/hitratio/x"])
def test_nothing_else(exporter: Exporter, path: str) -> None:
    assert fetch(exporter, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_get(exporter: Exporter, method: str) -> None:
    answer = raw(exporter, f"{method} /metrics HTTP/1.0\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 501 ")
    assert b"hitratio_requests" not in answer


def test_rubbish_does_not_stop_it(exporter: Exporter) -> None:
    raw(exporter, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
    raw(exporter, b"GET " + b"x" * 100_000 + b"\r\n\r\n")
    assert fetch(exporter, "/metrics")[0] == 200


def test_it_says_nothing_on_stderr(exporter: Exporter, capfd: pytest.CaptureFixture[str]) -> None:
    fetch(exporter, "/metrics")
    fetch(exporter, "/nothing")
    with socket.create_connection((HOST, exporter.port), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    time.sleep(0.1)
    assert capfd.readouterr() == ("", "")


def test_slow_and_many_clients_are_shed(shown: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than it has places for: the rest is turned away at once, and the places come back by themselves."""
    monkeypatch.setattr(server, "_PATIENCE_S", 1.0)
    exporter = Exporter(HOST, 0, lambda: shown)
    threads = threading.active_count()
    try:
        slow = [socket.create_connection((HOST, exporter.port), timeout=10) for _ in range(40)]
        for client in slow:
            client.settimeout(10)
        shed = 0
        deadline = time.monotonic() + 5
        while shed < 32 and time.monotonic() < deadline:
            for client in list(slow):
                client.setblocking(False)
                try:
                    gone = client.recv(1) == b""
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    gone = True
                if gone:
                    client.close()
                    slow.remove(client)
                    shed += 1
            time.sleep(0.02)
            if shed == 32:
                assert threading.active_count() - threads <= 8
        assert shed >= 32
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                if fetch(exporter, "/metrics")[0] == 200:
                    break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        else:
            pytest.fail("places did not come back")
        for client in slow:
            client.close()
    finally:
        exporter.close()


def test_a_client_that_drips_bytes_is_shed(shown: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read is in time; the request as a whole never is."""
    monkeypatch.setattr(server, "_PATIENCE_S", 0.5)
    exporter = Exporter(HOST, 0, lambda: shown)
    try:
        with socket.create_connection((HOST, exporter.port), timeout=10) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
            began = time.monotonic()

            def drip() -> None:
                while time.monotonic() - began < 10:
                    client.sendall(b"x")
                    time.sleep(0.1)

            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                drip()
        assert time.monotonic() - began < 5
        assert fetch(exporter, "/metrics")[0] == 200
    finally:
        exporter.close()


def test_a_taken_port_is_an_oserror(exporter: Exporter, shown: Snapshot) -> None:
    with pytest.raises(OSError, match="in use"):
        Exporter(HOST, exporter.port, lambda: shown)

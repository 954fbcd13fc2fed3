"""Reading a server over HTTP: which page is taken, how the exporter is found, and what an error says."""

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.example_snapshots import page, snapshot
from vllm_hitratio_plugin.exporter.server import Exporter
from vllm_hitratio_plugin.metrics.fetch import FetchError, fetch
from vllm_hitratio_plugin.model.traffic import TrafficSums
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.snapshot_json import to_json

HOST = "127.0.0.1"
Serve = Callable[[dict[str, str]], str]


def engine(number: int = 0, **fields: Any) -> Snapshot:
    """With sums, as only an exporter shows them."""
    return snapshot(300, engine=str(number), sums=TrafficSums(seconds=600.0, requests=300.0), **fields)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server of the given pages, by path; returns its base address."""
    servers = []

    def start(pages: dict[str, str]) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path)
                self.send_response(404 if body is None else 200)
                self.end_headers()
                self.wfile.write((body or "").encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://{HOST}:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter(HOST, 0, engine)
    yield made
    made.close()


@pytest.mark.parametrize("path", ["", "/", "/hitratio", "/hitratio.json"])
@pytest.mark.parametrize("whole", [True, False])
def test_the_exporter_gives_the_whole_snapshot(exporter: Exporter, path: str, whole: bool) -> None:
    assert fetch(exporter.url + path, whole=whole).snapshots[0].sums is not None
    assert fetch((exporter.url + path).removeprefix("http://"), whole=whole).snapshots[0].sums is not None


def test_a_page_of_metrics_has_no_sums(exporter: Exporter) -> None:
    (found,) = fetch(f"{exporter.url}/metrics").snapshots
    assert (found.sums, found.counters.requests) == (None, 300)


@pytest.mark.parametrize("path", ["", "/metrics"])
def test_from_vllms_own_page_to_the_exporter(exporter: Exporter, serve: Serve, path: str) -> None:
    vllm = 'vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 7.0\n'
    url = serve({"/metrics": page(engine(exporter=exporter.url)) + vllm}) + path
    assert fetch(url).snapshots[0].sums is None
    (found,) = fetch(url, whole=True).snapshots
    assert found.sums.requests == 300
    assert found.vllm.hits == 7


def test_each_engine_has_its_own_exporter(exporter: Exporter, serve: Serve) -> None:
    other = Exporter(HOST, 0, lambda: engine(1))
    try:
        url = serve({"/metrics": page(engine(exporter=exporter.url), engine(1, exporter=other.url))})
        found = fetch(url, whole=True).snapshots
        assert [each.engine for each in found] == ["0", "1"]
        assert all(each.sums is not None for each in found)
        # Exchanged, each is somebody else's: no figures of another engine are taken.
        url = serve({"/metrics": page(engine(exporter=other.url), engine(1, exporter=exporter.url))})
        with pytest.raises(FetchError, match="is not its exporter"):
            fetch(url, whole=True)
    finally:
        other.close()


def test_an_exporter_bound_to_every_address_is_sought_on_the_host_that_was_asked(
    exporter: Exporter, serve: Serve
) -> None:
    url = serve({"/metrics": page(engine(exporter=f"http://0.0.0.0:{exporter.port}"))})
    assert fetch(url, whole=True).snapshots[0].sums is not None


def test_a_page_can_not_send_its_reader_to_another_host(exporter: Exporter, serve: Serve) -> None:
    url = serve({"/metrics": page(engine(exporter=f"http://elsewhere.invalid:{exporter.port}"))})
    assert fetch(url, whole=True).snapshots[0].sums is not None


def test_without_an_exporter_the_error_says_how_to_get_one(serve: Serve) -> None:
    url = serve({"/metrics": page(engine(exporter=None))})
    with pytest.raises(FetchError, match=r"tiny, engine 0.*--hitratio-port"):
        fetch(url, whole=True)


def test_engines_of_a_federated_page_are_not_sought_on_its_host(exporter: Exporter, serve: Serve) -> None:
    """Both name the same address, each on a host of its own."""
    lines = page(engine(exporter=exporter.url)).splitlines(keepends=True)
    text = "".join(
        line.replace("{", f'{{pod="{pod}",', 1) for pod in "ab" for line in lines if not line.startswith("#")
    )
    url = serve({"/metrics": text})
    assert [found.labels for found in fetch(url).snapshots] == [{"pod": "a"}, {"pod": "b"}]
    with pytest.raises(FetchError, match=r"shows it for another server \(pod a\)"):
        fetch(url, whole=True)


def test_where_it_looked_is_said_without_secrets(serve: Serve) -> None:
    url = serve({"/metrics?token=secret": 'vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 7.0\n'})
    looked_at = fetch(f"{url}/metrics?token=secret").looked_at
    assert looked_at.startswith(
        f"There are no figures of the plugin at {url}/metrics. Not looked at: http://{HOST}:9577"
    )


def test_a_loopback_exporter_of_another_host_is_named(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page(engine(exporter="http://127.0.0.1:9577"))
    monkeypatch.setattr("vllm_hitratio_plugin.metrics.fetch._get", lambda url, _: text if "metrics" in url else None)
    with pytest.raises(FetchError, match=r"http://127\.0\.0\.1:9577 on that host alone.*--hitratio-host"):
        fetch("http://node5:8000", whole=True)


def test_what_answers_in_place_of_the_exporter_is_refused(serve: Serve) -> None:
    for pages in ({}, {"/hitratio.json": "hello"}, {"/hitratio.json": to_json(engine(5)).decode()}):
        impostor = serve(pages)
        url = serve({"/metrics": page(engine(exporter=impostor))})
        with pytest.raises(FetchError, match=f"is not its exporter.*listens at {impostor}"):
            fetch(url, whole=True)


def test_an_exporter_that_is_gone_is_named(serve: Serve) -> None:
    gone = Exporter(HOST, 0, engine)
    gone.close()
    url = serve({"/metrics": page(engine(exporter=gone.url))})
    with pytest.raises(FetchError, match=f"{gone.url}/hitratio.json can't be reached.*{url} names it as the exporter"):
        fetch(url, whole=True)


@pytest.mark.parametrize("address", ["http://127.0.0.1:x", "http://127.0.0.1", "http://[", "nonsense", ""])
def test_an_address_that_is_none_is_a_fetch_error(serve: Serve, address: str) -> None:
    url = serve({"/metrics": page(engine(exporter=address))})
    with pytest.raises(FetchError, match="engine 0"):
        fetch(url, whole=True)


def test_the_deadline_is_for_both_servers_together(serve: Serve) -> None:
    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(0.6)
            self.send_response(200)
            self.end_headers()
            body = page(replace(engine(), exporter=url)) if self.path == "/metrics" else to_json(engine()).decode()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((HOST, 0), Slow)
    server.daemon_threads = True
    url = f"http://{HOST}:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert fetch(f"{url}/metrics", timeout=10.0, whole=True).snapshots[0].sums is not None
        # Each of the two answers would be in time by itself.
        with pytest.raises(FetchError, match="timed out"):
            fetch(f"{url}/metrics", timeout=0.9, whole=True)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://localhost", "http://localhost:0", "http://localhost:x", "http://["]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(FetchError, match="is not an address of a server"):
        fetch(url)


def test_other_servers_and_pages(serve: Serve) -> None:
    with pytest.raises(FetchError, match="has no such page"):
        fetch(serve({}))
    for body in ("hello", "", "{}", "{", "up 1\n", "\x00"):
        with pytest.raises(FetchError, match="neither hitratio"):
            fetch(serve({"/metrics": body}))

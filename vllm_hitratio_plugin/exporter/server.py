"""The engine's own HTTP exporter: works in every topology, also where vLLM serves no ``/metrics`` (``--headless``)."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from vllm_hitratio_plugin.exporter.page import render
from vllm_hitratio_plugin.findings.rules import diagnose
from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.snapshot_json import to_json

#: Clients served at a time, and seconds that one may stay silent; a whole request may take twice as long. The server
#: drops connections beyond these limits.
_CLIENTS = 8
_PATIENCE_S = 5.0


def _prefers_html(accept: str) -> bool:
    """Whether an Accept header names HTML, and not JSON before it: browsers do, curl sends */*."""
    html, json_ = accept.find("text/html"), accept.find("application/json")
    return html >= 0 and not 0 <= json_ < html


def _to_json(snapshot: Snapshot) -> bytes:
    return to_json(snapshot, findings=diagnose(snapshot))


class Exporter:
    """Serves ``/metrics`` (Prometheus) and ``/hitratio`` from daemon threads.

    ``/hitratio`` is the snapshot with its findings: a page for browsers, JSON for other clients and as
    ``/hitratio.json``.

    Attributes:
        port: Where it listens.
        url: Its base address, with the host that it is bound to.

    Raises:
        OSError: the address can't be bound.
    """

    def __init__(self, host: str, port: int, read: Callable[[], Snapshot]) -> None:
        registry = CollectorRegistry()
        registry.register(SnapshotCollector(lambda: [read()]))
        places = threading.BoundedSemaphore(_CLIENTS)
        since: dict[socket.socket, float] = {}

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S
            server_version = "hitratio"
            sys_version = ""

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                if path == "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(200, content_type, encode(registry))
                elif path == "/hitratio" and _prefers_html(self.headers.get("Accept", "")):
                    snapshot = read()
                    self._answer(200, "text/html; charset=utf-8", render(snapshot, diagnose(snapshot)).encode())
                elif path in ("/hitratio", "/hitratio.json"):
                    self._answer(200, "application/json", _to_json(read()))
                else:
                    self._answer(404, "text/plain", b"Try /metrics or /hitratio\n")

            def _answer(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: requests to the exporter do not belong in vLLM's log."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            # Otherwise two engines could share a port unnoticed.
            allow_reuse_port = False

            def process_request(self, request: Any, client_address: Any) -> None:
                if places.acquire(blocking=False):
                    try:
                        super().process_request(request, client_address)
                    except BaseException:
                        # No thread could be started, so nothing else would release the place.
                        places.release()
                        raise
                else:
                    self.shutdown_request(request)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                since[request] = time.monotonic()
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    since.pop(request, None)
                    places.release()

            def service_actions(self) -> None:
                """Runs twice a second. The handler's timeout is per read; a client that drips bytes never meets it."""
                late = time.monotonic() - 2 * _PATIENCE_S
                for request, began in tuple(since.items()):
                    if began < late:
                        with contextlib.suppress(OSError):
                            request.shutdown(socket.SHUT_RDWR)

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Say nothing: clients may go away."""

        self._server = Server((host, port), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        threading.Thread(target=self._server.serve_forever, name="hitratio-exporter", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

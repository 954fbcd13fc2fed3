"""A Grafana that only remembers: the part of its HTTP API that a push uses, on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "glsa_test"


class Recorder:
    """State and requests; tests set what it answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any, dict[str, str]]] = []
        self.folders: dict[str, dict[str, Any]] = {}
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.rules: dict[str, dict[str, Any]] = {}
        self.sources: list[dict[str, Any]] = [
            {"uid": "logs", "type": "loki", "isDefault": True},
            {"uid": "prom-a", "type": "prometheus", "isDefault": False},
            {"uid": "prom-b", "type": "prometheus", "isDefault": False},
        ]
        self.health: Any = {"commit": "abc", "database": "ok", "version": "11.6.0"}
        self.fixed: dict[tuple[str, str], tuple[int, Any]] = {}
        """Answers by (method, path) that go before everything else."""
        self.prefix = ""
        self.url = ""

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path, *_ in self.requests if method != "GET"]

    def answer(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        self.requests.append((method, path, body, headers))
        if (method, path) in self.fixed:
            return self.fixed[method, path]
        if not path.startswith(self.prefix):
            return 404, {"message": "Not found"}
        path = path.removeprefix(self.prefix)
        if path == "/api/health":
            return 200, self.health
        if not path.startswith("/api/"):
            return 404, {"message": "Not found"}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Invalid API key"}
        for start, call in (
            ("/api/folders", self._folders),
            ("/api/dashboards", self._dashboards),
            ("/api/v1/provisioning/alert-rules", self._rules),
        ):
            if path.startswith(start):
                return call(method, path.removeprefix(start).strip("/"), body, headers)
        if (method, path) == ("GET", "/api/datasources"):
            return 200, self.sources
        return 404, {"message": "Not found"}

    def _folders(self, method: str, name: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        if method == "POST":
            self.folders[body["uid"]] = {"id": 7, **body}
            return 200, self.folders[body["uid"]]
        if name not in self.folders:
            return 404, {"message": "folder not found"}
        if method == "PUT":
            self.folders[name].update(title=body["title"])
        return 200, self.folders[name]

    def _dashboards(self, method: str, name: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        if method == "POST":
            assert "folderId" not in body, "Grafana 13 ignores it"
            page = body["dashboard"]
            version = self.dashboards.get(page["uid"], {"dashboard": {"version": 0}})["dashboard"]["version"] + 1
            assert body["overwrite"] or version == 1
            saved = {**page, "id": 40 + len(self.dashboards), "version": version}
            self.dashboards[page["uid"]] = {"dashboard": saved, "meta": {"folderUid": body["folderUid"]}}
            return 200, {"uid": page["uid"], "status": "success", "version": version}
        found = self.dashboards.get(name.removeprefix("uid/"))
        return (200, found) if found else (404, {"message": "Dashboard not found"})

    def _rules(self, method: str, name: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        if method == "GET":
            return (200, self.rules[name]) if name in self.rules else (404, {"message": "alert rule not found"})
        if method == "POST" and body["uid"] in self.rules:
            return 409, {"message": "UID exists"}
        if method == "PUT" and name not in self.rules:
            return 404, {"message": "alert rule not found"}
        assert body["folderUID"] in self.folders, "the folder comes first"
        # What Grafana adds of its own.
        data = [
            {**query, "queryType": "", "model": {"intervalMs": 1000, "maxDataPoints": 43200, **query["model"]}}
            for query in body["data"]
        ]
        self.rules[body["uid"]] = {"id": 1, "updated": "2026-01-01T00:00:00Z", **body, "data": data}
        return (201 if method == "POST" else 200), self.rules[body["uid"]]


@contextmanager
def recording(prefix: str = "") -> Iterator[Recorder]:
    """A recorder that listens."""
    recorder = Recorder()
    recorder.prefix = prefix

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = recorder.answer(self.command, self.path, body, dict(self.headers))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", answer["to"])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    recorder.url = f"http://127.0.0.1:{server.server_address[1]}{prefix}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()

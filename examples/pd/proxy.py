"""A proxy for one prefiller and one decoder, small enough to read; not for production.

    python -m examples.pd.proxy --port 8000 --prefiller http://127.0.0.1:8100 --decoder http://127.0.0.1:8200

The proxy sends a request to the prefiller P with ``max_tokens`` 1, then to the decoder D unchanged, except that it adds
what P's connector said about the transfer (``kv_transfer_params``). Conversation ids (``session_id``, ``vllm_xargs``,
``X-Session-ID``) go to both, so that both can link the turns of a conversation.
"""

import argparse
import http.client
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PATHS = ("/v1/completions", "/v1/chat/completions")
FORWARDED = ("Authorization", "X-Session-ID", "X-Request-Id")
TIMEOUT = 600.0


class Proxy(ThreadingHTTPServer):
    """Listens on the loopback interface."""

    daemon_threads = True

    def __init__(self, port: int, prefiller: str, decoder: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.prefiller = prefiller
        self.decoder = decoder


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        if self.path not in PATHS:
            self._answer(404, "application/json", b'{"error": "no such path"}')
            return
        try:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        except ValueError:
            self._answer(400, "application/json", b'{"error": "the body is not JSON"}')
            return
        try:
            prefilled = self._ask(self.server.prefiller, prefill(asked))
            status, kind, body = self._forward(self.server.decoder, decode(asked, prefilled))
        except (OSError, http.client.HTTPException) as error:
            self._answer(502, "application/json", json.dumps({"error": str(error)}).encode())
            return
        self._answer(status, kind, body)

    def _ask(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        status, _, answer = self._forward(url, body)
        if status != 200:
            # Then D prefills by itself, or says what is wrong with the request.
            return {}
        found: dict[str, Any] = json.loads(answer)
        return found

    def _forward(self, url: str, body: dict[str, Any]) -> tuple[int, str, bytes]:
        target = urlsplit(url)
        connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=TIMEOUT)
        headers = {name: self.headers[name] for name in FORWARDED if name in self.headers}
        try:
            connection.request("POST", self.path, json.dumps(body), headers | {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", "application/json"), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def prefill(asked: dict[str, Any]) -> dict[str, Any]:
    """The request for P: one token, not streamed, to be continued by D."""
    body = asked | {"max_tokens": 1, "stream": False}
    body.pop("stream_options", None)
    if "max_completion_tokens" in body:
        body["max_completion_tokens"] = 1
    if "min_tokens" in body:
        body["min_tokens"] = 1
    body["kv_transfer_params"] = {"do_remote_decode": True, "do_remote_prefill": False}
    return body


def decode(asked: dict[str, Any], prefilled: dict[str, Any]) -> dict[str, Any]:
    """The request for D: unchanged, plus where P's blocks are if P's connector says so."""
    parameters = prefilled.get("kv_transfer_params")
    return asked | {"kv_transfer_params": parameters} if parameters else asked


def main() -> None:
    parser = argparse.ArgumentParser(description="One prefiller, one decoder.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--prefiller", required=True, metavar="URL")
    parser.add_argument("--decoder", required=True, metavar="URL")
    arguments = parser.parse_args()
    proxy = Proxy(arguments.port, arguments.prefiller, arguments.decoder)
    print(f"proxy on http://127.0.0.1:{arguments.port}, P {arguments.prefiller}, D {arguments.decoder}")
    try:
        proxy.serve_forever()
    except KeyboardInterrupt:
        proxy.server_close()


if __name__ == "__main__":
    main()

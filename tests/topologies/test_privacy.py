"""What leaves a serving engine: numbers only, on the loopback interface. No text, no token ids, no hashes, no ids."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from examples.demo.server import HOST
from tests.support import compatibility
from tests.support.real_server import serve

pytestmark = [pytest.mark.engines, pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(600)]

MARK = "Xyzzy-plugh"
IDS: list[object] = [
    f"{MARK}-1",
    f"{MARK}\nhitratio_requests_total 5\n",
    f'{MARK}",engine="9"}} 1',
    MARK + "x" * 100_000,
    f"{MARK}\x00\ud7ff\u202e",
    12345678901234567890,
    3.25,
    True,
    "",
]


def test_only_numbers_leave(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    options = ("--hitratio-window", "60", "--hitratio-interval", "0.5")
    # Its own folder for snapshots, chosen as it would be, but below one that can be searched.
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with serve(tiny_model, tmp_path / "log", *options, paths=[shim], TMPDIR=str(temporary)) as server:
        text = f"{MARK} a secret that is long enough for some blocks of thirty-two byte tokens each. " * 4
        statuses = []
        for number in range(3):
            for name in IDS:
                body = {"model": server.model, "prompt": text + str(number), "max_tokens": 1}
                for extra in ({"session_id": name}, {"vllm_xargs": {"conversation_id": name}}):
                    statuses.append(post(server.port, body | extra))
        statuses.append(post(server.port, {"model": server.model, "prompt": [77] * 300, "max_tokens": 1}))
        # Ids of a wrong type are refused by vLLM's own validation; nothing else, and nothing of it breaks the server.
        assert set(statuses) <= {200, 400}
        served = statuses.count(200)
        assert served > len(statuses) / 2
        server.wait_for("all published", lambda: server.value("hitratio_requests_total") == served)

        pages = [server.get("/metrics", port) for port in (server.port, server.exporter_port)]
        pages.append(server.get("/hitratio", server.exporter_port))
        folders = list(temporary.glob("hitratio-*"))
        assert len(folders) == 1
        assert os.stat(folders[0]).st_mode & 0o077 == 0
        files = [path.read_text() for path in folders[0].iterdir()]
        assert files
        ours = "\n".join(server.lines())
        for said in (*pages, *files, ours):
            assert MARK.lower() not in said.lower()
            assert "12345678901234567890" not in said
            assert "77, 77" not in said
        # Snapshots are numbers and names; no list is as long as a prompt, no text as long as a digest of ours.
        for path in folders[0].iterdir():
            assert longest_text(json.loads(path.read_text()) | {"model_name": ""}) < 32
        import psutil  # brought by vLLM

        listening = {
            connection.laddr.ip
            for process in [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(True)]
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == server.exporter_port
        }
        assert listening == {HOST}
        # The page still parses, and is of one engine.
        assert {labels["engine"] for labels, _ in server.samples()["hitratio_requests_total"]} == {"0"}
        compatibility.record(
            "limits",
            "hostile conversation ids",
            what_was_seen="100 kB, line breaks, quotes, numbers: served, counted, kept as digests; no text, token, "
            "hash or id on a page, in a snapshot or in the log",
        )


def post(port: int, body: dict[str, object]) -> int:
    request = urllib.request.Request(
        f"http://{HOST}:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def longest_text(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return max((longest_text(each) for each in (*value.keys(), *value.values())), default=0)
    if isinstance(value, list):
        return max((longest_text(each) for each in value), default=0)
    return 0

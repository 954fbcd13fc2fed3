"""Case 28: two real servers on one node with the same settings."""

from pathlib import Path

import pytest

from tests.support.real_server import serve

pytestmark = [pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(900)]


def test_the_second_server_takes_the_next_free_port(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    options = ("--hitratio-window", "60", "--hitratio-interval", "2")
    with serve(tiny_model, tmp_path / "log-1", *options, paths=[shim]) as first:
        same = (*options, "--hitratio-port", str(first.exporter_port))
        with serve(tiny_model, tmp_path / "log-2", *same, paths=[shim]) as second:
            sent = [server.drive(conversations=turns) for server, turns in ((first, 3), (second, 5))]
            for server, requests in zip((first, second), sent, strict=True):
                server.wait_until_counted(requests)
                page = server.samples()
                assert {on for _, on in page["hitratio_degraded"]} == {0}
                ((labels, _),) = page["hitratio_exporter_info"]
                port = int(labels["url"].rpartition(":")[2])
                assert (port == first.exporter_port) == (server is first)
                assert server.value("hitratio_requests_total", port) == requests
            (said,) = [line for line in second.lines() if "/metrics" in line]
            assert f":{port}/metrics (port {first.exporter_port} is in use)" in said
            assert not [line for line in second.lines() if "WARNING" in line or "ERROR" in line]

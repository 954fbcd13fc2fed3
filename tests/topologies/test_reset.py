"""The prefix cache is dropped while serving, by vLLM's own endpoint: said, and it causes no divergence."""

import urllib.request
from pathlib import Path

import pytest

from examples.demo.server import HOST
from tests.support import compatibility
from tests.support.real_server import serve

pytestmark = [pytest.mark.engines, pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(600)]


def test_reset_of_a_serving_engine(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    options = ("--hitratio-window", "60", "--hitratio-interval", "0.5")
    with serve(tiny_model, tmp_path / "log", *options, paths=[shim], VLLM_SERVER_DEV_MODE="1") as server:
        prompt = list(range(200))
        for _ in range(3):
            assert server.complete(prompt) == 200
        request = urllib.request.Request(f"http://{HOST}:{server.port}/reset_prefix_cache", method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        for _ in range(2):
            assert server.complete(prompt) == 200
        server.wait_until_counted(5)
        assert server.value("hitratio_cache_resets_total") == 1
        reset = server.value("hitratio_last_reset_timestamp_seconds")
        assert reset is not None
        # Twice before, once after; nothing is expected of what was dropped.
        assert server.value("hitratio_hit_tokens_total") == 3 * 192
        assert server.value("hitratio_curve_hit_blocks_total", capacity_blocks="+Inf") == 3 * 6
        assert server.value("hitratio_hit_tokens_total") == server.value("vllm:prefix_cache_hits_total")
    compatibility.record(
        "topologies",
        "`/reset_prefix_cache` while serving",
        what_was_seen="counted, with its time; nothing expected of it",
    )

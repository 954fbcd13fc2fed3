"""The plugin raising on purpose in each of its parts, inside a real engine that serves all the while."""

from collections.abc import Callable
from pathlib import Path

import faulty
import pytest
from real_server import Server, serve

pytestmark = [pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(900)]


def said(server: Server, words: str) -> list[str]:
    return [line for line in server.lines() if words in line]


def test_every_part_fails_and_requests_are_served(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    plugin = faulty.install(tmp_path / "plugin")
    (faults / "exporter").touch()
    options = ("--hitratio-window", "60", "--hitratio-interval", "0.5")
    with serve(
        tiny_model, tmp_path / "log", *options, paths=[shim, plugin], HITRATIO_TEST_FAULTS=str(faults)
    ) as server:

        def degraded(reason: str) -> Callable[[], bool]:
            return lambda: server.value("hitratio_degraded", reason=reason) == 1

        def now() -> set[str]:
            return {labels["reason"] for labels, on in server.samples()["hitratio_degraded"] if on}

        # The exporter did not start; all the rest works.
        server.wait_for("exporter", degraded("exporter"))
        sent = server.drive(conversations=20)
        server.wait_for("all published", lambda: server.value("hitratio_prompts_total") == sent)
        assert server.value("hitratio_prompt_tokens_total") == server.value("vllm:prefix_cache_queries_total")
        assert now() == {"exporter"}
        assert len(said(server, "no exporter on")) == 1

        # The fit: what was fitted last stays, with its time.
        (faults / "fit").touch()
        server.wait_for("fit", degraded("fit"))
        fitted = server.value("hitratio_last_fit_timestamp_seconds")
        server.drive(conversations=10, seed=2)
        assert server.value("hitratio_last_fit_timestamp_seconds") == fitted
        assert now() == {"exporter", "fit"}
        assert len(said(server, "the estimate is stale")) == 1
        (faults / "fit").unlink()
        server.wait_for("fitted again", lambda: server.value("hitratio_last_fit_timestamp_seconds") != fitted)

        # The snapshot: the page is not up to date, the engine does not mind.
        (faults / "snapshot").touch()
        server.wait_for("snapshot", lambda: bool(said(server, "not up to date")))
        server.drive(conversations=5, seed=3)
        (faults / "snapshot").unlink()
        server.wait_for("on the page again", degraded("snapshot"))

        # The tree, again and again: the estimate starts anew, until the plugin gives up.
        (faults / "tree").touch()
        server.drive(conversations=10, seed=4)
        server.wait_for("tree", degraded("workload"))
        assert server.value("hitratio_hit_tokens_total") in (None, 0)
        (faults / "tree").unlink()
        server.drive(conversations=10, seed=5)
        server.wait_for("recording goes on", lambda: (server.value("hitratio_prompts_total") or 0) >= 1)
        assert len(said(server, "the estimate starts anew")) == 1

        # The hook: nothing is recorded any more, and no figure looks as if it were.
        (faults / "hook").touch()
        server.drive(conversations=10, seed=6)
        server.wait_for("hook", degraded("hook"))
        server.wait_for("no figures", lambda: "hitratio_prompts_total" not in server.samples())
        assert not any(name.startswith("hitratio_") and "ratio_" in name[9:] for name in server.samples())
        (faults / "hook").unlink()
        server.drive(conversations=5, seed=7)

        assert now() == {"exporter", "fit", "snapshot", "workload", "hook"}
        # vLLM itself counted every request, and one line was written for each fault.
        assert len([line for line in server.lines() if "WARNING" in line or "ERROR" in line]) == 5
        assert "Traceback" not in server.log.read_text(errors="replace")

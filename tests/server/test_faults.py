"""Each part of the plugin made to raise, hang or return nonsense, inside a real engine that serves all the while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import compatibility, faulty
from tests.support.real_server import Server, serve

pytestmark = [pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(900)]


def said(server: Server, words: str) -> list[str]:
    return [line for line in server.lines() if words in line]


def test_every_part_raises_and_requests_are_served(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    plugin = faulty.install(tmp_path / "plugin")
    (faults / "exporter").write_text("raise")
    options = ("--hitratio-window", "60", "--hitratio-interval", "0.5")
    with serve(
        tiny_model, tmp_path / "log", *options, paths=[shim, plugin], HITRATIO_TEST_FAULTS=str(faults)
    ) as server:

        def degraded(reason: str) -> Callable[[], bool]:
            return lambda: server.value("hitratio_degraded", reason=reason) == 1

        def now() -> set[str]:
            return {labels["reason"] for labels, on in server.samples()["hitratio_degraded"] if on}

        # The exporter did not start; all the rest works, so the figures have a way out.
        server.wait_for("exporter", lambda: bool(said(server, "no exporter on")))
        sent = server.drive(conversations=20)
        server.wait_until_counted(sent)
        assert server.value("hitratio_prompt_tokens_total") == server.value("vllm:prefix_cache_queries_total")
        server.wait_for("shown here", lambda: now() == set())
        assert len(said(server, "no exporter on")) == 1

        # The fit: what was fitted last stays, with its time.
        (faults / "fit").write_text("raise")
        server.wait_for("fit", degraded("fit"))
        fitted = server.value("hitratio_last_fit_timestamp_seconds")
        server.drive(conversations=10, seed=2)
        assert server.value("hitratio_last_fit_timestamp_seconds") == fitted
        assert now() == {"fit"}
        assert len(said(server, "the estimate is stale")) == 1
        (faults / "fit").unlink()
        server.wait_for("fitted again", lambda: server.value("hitratio_last_fit_timestamp_seconds") != fitted)

        # The snapshot: the page is not up to date, the engine does not mind.
        (faults / "snapshot").write_text("raise")
        server.wait_for("snapshot", lambda: bool(said(server, "not up to date")))
        server.drive(conversations=5, seed=3)
        (faults / "snapshot").unlink()
        server.wait_for("on the page again", lambda: server.value("hitratio_degraded", reason="fit", engine="0") == 1)

        # The tree, again and again: the estimate starts again, until the plugin gives up.
        (faults / "tree").write_text("raise")
        server.drive(conversations=10, seed=4)
        server.wait_for("tree", degraded("workload"))
        assert server.value("hitratio_hit_tokens_total") in (None, 0)
        (faults / "tree").unlink()
        server.drive(conversations=10, seed=5)
        server.wait_for("recording goes on", lambda: (server.value("hitratio_requests_total") or 0) >= 1)
        assert len(said(server, "the estimate starts again")) == 1

        # The hook: nothing is recorded any more, and no figure looks as if it were.
        (faults / "hook").write_text("raise")
        server.drive(conversations=10, seed=6)
        server.wait_for("hook", degraded("hook"))
        server.wait_for("no figures", lambda: "hitratio_requests_total" not in server.samples())
        assert not any(name.startswith("hitratio_") and "ratio_" in name[9:] for name in server.samples())
        (faults / "hook").unlink()
        server.drive(conversations=5, seed=7)

        assert now() == {"fit", "workload", "hook"}
        # vLLM itself counted every request, and one line was written for each fault.
        assert len([line for line in server.lines() if "WARNING" in line or "ERROR" in line]) == 5
        assert "Traceback" not in server.log.read_text(errors="replace")

    for part, seen in {
        "hook": "recording stops for good, no figure looks measured",
        "prefix tree": "the estimate starts again; after ten failures recording stops",
        "fit": "the last figures stay, with their time",
        "snapshot file": "vLLM's page says so after four refreshes, then all is counted",
        "exporter": "vLLM's page has it all; tried again at each refresh",
    }.items():
        compatibility.record("faults", part, raises=seen)


def test_every_part_hangs_or_returns_nonsense_and_requests_are_served(
    tiny_model: Path, shim: Path, tmp_path: Path
) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    plugin = faulty.install(tmp_path / "plugin")
    options = ("--hitratio-window", "60", "--hitratio-interval", "0.5")
    (faults / "exporter").write_text("hang")
    seeds = iter(range(100))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with serve(
        tiny_model,
        tmp_path / "log",
        *options,
        paths=[shim, plugin],
        HITRATIO_TEST_FAULTS=str(faults),
        TMPDIR=str(temporary),
    ) as server:

        @contextmanager
        def broken(part: str, what: str, conversations: int = 20) -> Iterator[None]:
            """Requests under the fault, then what the block says, then the end of it."""
            (faults / part).write_text(what)
            server.drive(conversations, seed=next(seeds))
            server.samples()  # the page parses
            yield
            (faults / part).unlink()

        def published() -> bool:
            return server.value("hitratio_prompt_tokens_total") == server.value("vllm:prefix_cache_queries_total")

        # The exporter hangs as the engine starts, in a name that nobody resolves: served from the first moment on.
        server.drive(conversations=20, seed=next(seeds))
        assert [name for name in server.samples() if name.startswith("hitratio_")] == ["hitratio_degraded"]
        (faults / "exporter").unlink()
        server.wait_for("nothing is lost", published)

        for part in ("tree", "fit", "snapshot"):
            with broken(part, "hang"):
                counted = server.value("hitratio_requests_total")
                assert server.value("hitratio_requests_total", server.exporter_port) is not None
                server.drive(conversations=5, seed=next(seeds))
                # It does hang, and leaves the page after some refreshes.
                assert server.value("hitratio_requests_total") in (None, counted)
            server.wait_for(f"nothing is lost by a hanging {part}", published)
        assert not any(on for _, on in server.samples().get("hitratio_degraded", ()))

        def said(reason: str) -> Callable[[], bool]:
            return lambda: server.value("hitratio_degraded", reason=reason) == 1

        with broken("fit", "nonsense"):
            server.wait_for("a fit of nonsense", said("fit"))
            server.samples(server.exporter_port)
        server.wait_for("all of it is there again", published)
        with broken("snapshot", "nonsense"):
            counted = server.value("hitratio_requests_total")
            server.drive(conversations=5, seed=next(seeds))
            assert server.value("hitratio_requests_total") in (None, counted)
        server.wait_for("on the page again", published)
        for part in ("tree", "hook"):
            with broken(part, "nonsense", conversations=1):
                server.wait_for(f"nonsense of the {part}", said("workload"))
            server.drive(conversations=5, seed=next(seeds))
            server.wait_for("counting goes on", lambda: (server.value("hitratio_requests_total") or 0) >= 20)
            server.samples(server.exporter_port)

        # Whatever lies in the folder of the snapshots: vLLM's page has vLLM's figures.
        (folder,) = temporary.glob("hitratio-*")
        for number, text in enumerate(
            ("", "[]", "{}", '{"estimate": 5}', "\x00", '{"counters": null, "estimate": null}')
        ):
            (folder / f"engine-{number + 1}.json").write_text(text)
        assert server.value("vllm:prefix_cache_queries_total") is not None
        assert {labels["engine"] for labels, _ in server.samples()["hitratio_requests_total"]} == {"0"}
        assert "Traceback" not in server.log.read_text(errors="replace")
    for part, hang, nonsense in (
        ("hook", None, "the estimate starts again"),
        ("prefix tree", "the figures stand still, then all is counted", "the estimate starts again"),
        ("fit", "the figures stand still, then all is counted", "the last figures stay, with their time"),
        ("snapshot file", "vLLM's page stands still, then all is counted", "left out; vLLM's page has vLLM's figures"),
        ("exporter", "served from the first moment on; then all is counted", None),
    ):
        compatibility.record("faults", part, **({"hangs": hang} if hang else {}))
        compatibility.record("faults", part, **({"returns_nonsense": nonsense} if nonsense else {}))

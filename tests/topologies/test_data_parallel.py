"""Two data-parallel engines: behind one port, and with one of them on a ``--headless`` node."""

import subprocess
from pathlib import Path

import pytest

from examples.demo.server import free_port
from tests.support import compatibility
from tests.support.real_server import Server, command, environment, serve, stop

pytestmark = [pytest.mark.engines, pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(600)]

OPTIONS = ("--data-parallel-size", "2", "--hitratio-window", "60", "--hitratio-interval", "0.5")


def total(server: Server, name: str, port: int | None = None) -> dict[str, float]:
    """A counter by engine; the same engine twice fails."""
    found = server.samples(port).get(name, [])
    by_engine = {labels["engine"]: value for labels, value in found}
    assert len(by_engine) == len(found)
    return by_engine


def neighbours(count: int = 2) -> int:
    """A port whose successors are free, too: rank r's exporter is on port + r."""
    import socket

    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue


def test_two_engines_behind_one_port(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    first = neighbours()
    with serve(tiny_model, tmp_path / "log", *OPTIONS, "--hitratio-port", str(first), paths=[shim]) as server:
        sent = server.drive(conversations=24)
        server.wait_until_counted(sent)
        prompts = total(server, "hitratio_requests_total")
        assert set(prompts) == {"0", "1"}
        assert min(prompts.values()) > 0
        # vLLM's own, by engine; from several API servers it adds up.
        for ours, theirs in (
            ("hitratio_prompt_tokens_total", "vllm:prefix_cache_queries_total"),
            ("hitratio_hit_tokens_total", "vllm:prefix_cache_hits_total"),
        ):
            own: dict[str, float] = {}
            for labels, value in server.samples()[theirs]:
                own[labels["engine"]] = own.get(labels["engine"], 0) + value
            assert total(server, ours) == own
        # Each engine's exporter knows its engine alone.
        for rank in range(2):
            assert total(server, "hitratio_requests_total", first + rank) == {str(rank): prompts[str(rank)]}
        # A conversation whose turns are spread starts anew on the other rank: more starts than conversations.
        assert sum(total(server, "hitratio_conversations_total").values()) > 24
        compatibility.record(
            "topologies",
            "`--data-parallel-size 2`, two API servers",
            what_was_seen="both engines on every `/metrics`, once each, equal to vLLM's counters by engine; "
            "an exporter for each; a conversation spread over ranks counts as one on each",
        )


def test_headless_node(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    """The head's page has the head's engine alone; the other one's figures are at its own exporter."""
    rpc, exporter = free_port(), free_port()
    shared = ("--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(rpc))
    local = ("--data-parallel-size-local", "1")
    options = [*OPTIONS, *shared, *local, "--headless", "--data-parallel-start-rank", "1"]
    plugin = ["--plugin", "hitratio", "--hitratio-port", str(exporter)]
    log = (tmp_path / "headless.log").open("wb")
    node = subprocess.Popen(
        command(tiny_model, 0, *options, *plugin),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment({}, [shim]),
        start_new_session=True,
    )
    try:
        with serve(tiny_model, tmp_path / "log", *OPTIONS, *shared, *local, paths=[shim]) as server:
            sent = server.drive(conversations=24)

            def seen() -> dict[str, float]:
                return total(server, "hitratio_requests_total") | total(server, "hitratio_requests_total", exporter)

            server.wait_for("all published", lambda: sum(seen().values()) == sent)
            assert set(total(server, "hitratio_requests_total")) == {"0"}
            assert set(total(server, "hitratio_requests_total", exporter)) == {"1"}
            assert min(seen().values()) > 0
    finally:
        stop(node)
        log.close()
    compatibility.record(
        "topologies",
        "`--headless` node",
        what_was_seen="its engine at its own exporter (the flags on that node's command line, too); the head's "
        "`/metrics` has the head's engine",
    )

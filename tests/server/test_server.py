"""One real server with the plugin: both pages, vLLM's own counters, and its log."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import compatibility
from tests.support.real_server import BLOCK_SIZE, CAPACITY, Samples, Server, serve

pytestmark = [pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(900)]

OPTIONS = ("--hitratio-target", "0.5", "--hitratio-window", "60", "--hitratio-interval", "0.5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(tiny_model: Path, shim: Path, folder: Path) -> Iterator[Server]:
    snapshots = str(folder / "snapshots")
    with serve(tiny_model, folder / "log", *OPTIONS, paths=[shim], HITRATIO_SNAPSHOT_DIR=snapshots) as started:
        yield started


@pytest.fixture(scope="module")
def requests(server: Server) -> int:
    """The load, once, in two halves further apart than the window's slots, since an error needs two of them."""
    sent = server.drive(conversations=40)
    time.sleep(3)
    sent += server.drive(conversations=30, seed=2)
    server.wait_until_counted(sent)
    return sent


@pytest.fixture(scope="module")
def page(server: Server, requests: int) -> Samples:
    """vLLM's page right after the load: what the window has forgotten later does not matter."""
    return server.samples()


def test_counters_are_vllms_own_exactly(page: Samples, requests: int) -> None:
    def value(name: str) -> float:
        ((_, one),) = page[name]
        return one

    assert value("hitratio_prompt_tokens_total") == value("vllm:prefix_cache_queries_total")
    assert value("hitratio_hit_tokens_total") == value("vllm:prefix_cache_hits_total") > 0
    assert value("hitratio_hit_blocks_total") == value("hitratio_hit_tokens_total") / BLOCK_SIZE
    assert value("hitratio_requests_total") == requests
    assert value("hitratio_capacity_blocks") == CAPACITY
    assert value("hitratio_block_size_tokens") == BLOCK_SIZE
    assert value("hitratio_capacity_bytes") > 0


def test_labels_are_vllms_own(page: Samples) -> None:
    ((vllms, _),) = page["vllm:prefix_cache_queries_total"]
    ours = {name: found for name, found in page.items() if name.startswith("hitratio_")}
    assert len(ours) > 30
    for name, samples in ours.items():
        for labels, _ in samples:
            assert {"model_name": labels["model_name"], "engine": labels["engine"]} == vllms, name


def test_both_pages_show_the_same(server: Server, requests: int) -> None:
    """Ages and windows go on by themselves, so only counters are compared."""

    def counters(samples: Samples) -> Samples:
        return {name: found for name, found in samples.items() if name.startswith("hitratio_") and "_total" in name}

    on_vllm, on_exporter = map(counters, server.pages_of_one_refresh(None, server.exporter_port))
    assert on_vllm == on_exporter
    assert len(on_vllm) >= 8


def test_predictions_are_there_and_near(page: Samples) -> None:
    def value(name: str, **labels: str) -> float:
        (one,) = [value for those, value in page[name] if labels.items() <= those.items()]
        return one

    observed = value("hitratio_observed_ratio")
    predicted = value("hitratio_predicted_ratio", estimator="reuse_time")
    ceiling = value("hitratio_infinite_cache_ratio")
    assert 0 < observed < ceiling
    # A load of seconds is no steady traffic, so the prediction is only bounded; the exact LRU needs no such thing.
    assert 0 < predicted <= ceiling
    assert value("hitratio_shadow_ratio") == pytest.approx(observed, abs=0.02)
    assert value("hitratio_divergence_ratio_stderr") >= 0
    assert value("hitratio_target_ratio") == 0.5
    assert {on for _, on in page["hitratio_degraded"]} == {0}


def test_unusual_requests(server: Server, requests: int) -> None:
    """Ids of conversations of any kind, prompt logprobs, a prompt shorter than a block: all are served."""
    prompt = [7] * 40
    assert server.complete(prompt, vllm_xargs={"conversation_id": "ä" * 300, "turn": 1}) == 200
    assert server.complete(prompt, vllm_xargs={"session_id": 5}) == 200
    assert server.complete(prompt, session_id="") == 200
    assert server.complete(prompt, prompt_logprobs=1) == 200
    assert server.complete(prompt, cache_salt="salt") == 200
    assert server.complete([1]) == 200
    # Five more: the one with prompt_logprobs may not read the cache, and is not counted.
    server.wait_until_counted(requests + 5, requests + 6)
    assert server.value("hitratio_prompt_tokens_total") == server.value("vllm:prefix_cache_queries_total")
    assert server.value("hitratio_hit_tokens_total") == server.value("vllm:prefix_cache_hits_total")
    assert {on for _, on in server.samples()["hitratio_degraded"]} == {0}


def test_it_said_where_its_metrics_are_and_nothing_else(server: Server, requests: int) -> None:
    lines = server.lines()
    assert sum(f":{server.exporter_port}/metrics" in line for line in lines) == 1
    assert not [line for line in lines if "WARNING" in line or "ERROR" in line]


def test_the_last_of_all_a_snapshot_folder_that_is_gone(server: Server, folder: Path, requests: int) -> None:
    """Nothing can be handed to the API server any more: said once, and shown on the engine's own page."""
    shutil.rmtree(folder / "snapshots")
    (folder / "snapshots").write_text("in the way")
    port = server.exporter_port
    server.wait_for("degraded", lambda: server.value("hitratio_degraded", port, reason="snapshot") == 1)
    before = server.value("hitratio_requests_total", port)
    assert before is not None
    server.drive(conversations=5, seed=2)
    # The API server knows that the plugin is on: after a few refreshes without a snapshot it says that, and no more.
    server.wait_for("said", lambda: server.value("hitratio_degraded", reason="snapshot", engine="") == 1)
    assert [name for name in server.samples() if name.startswith("hitratio_")] == ["hitratio_degraded"]
    server.wait_for("all published", lambda: server.value("hitratio_requests_total", port) == before + 20)
    assert sum("not up to date" in line for line in server.lines()) == 1
    compatibility.record(
        "limits",
        "the folder of the snapshots is gone and can't be made",
        what_was_seen="said once; vLLM's page has vLLM's figures, the exporter ours",
    )
    os.unlink(folder / "snapshots")

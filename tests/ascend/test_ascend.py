"""vLLM-Ascend's real schedulers and connectors on CPU: admissions, delayed releases, external hits, load orders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import compatibility, wheels
from tests.support.ascend import environment
from tests.support.engines import ALL_ENGINES
from vllm_hitratio_plugin.engine.allowlist import advice

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

ORDERS = ("theirs-first", "ours-first")

#: `make test` runs the paper's pair in the harder order.
PAIRS = (
    [(version, order) for version in wheels.ASCEND for order in ORDERS]
    if ALL_ENGINES
    else [("0.22.1rc1", "ours-first")]
)
GENERAL = ["ascend_kv_connector", "ascend_model", "ascend_model_loader", "ascend_service_profiling"]


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    version, order = request.param
    return version, order


@pytest.fixture(scope="module")
def result(pair: tuple[str, str], tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    version, order = pair
    folder = tmp_path_factory.mktemp("ascend")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.one_ascend",
            str(tiny_model),
            str(folder / "result.json"),
            order,
        ],
        env=environment(version),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "result.json").read_text())


def part(result: Any, name: str) -> Any:
    found = result[name]
    assert "error" not in found, found["error"]
    return found


def test_platform_and_load_order(pair: tuple[str, str], result: Any) -> None:
    assert result["platform"] == "NPUPlatform"
    # Nothing of the engine's core, before vLLM-Ascend had its say (hazard H1).
    assert result["imported_early"] == []


TWO_TURNS = [["turn-1", 0, 0], ["turn-1"], ["stranger", 0, 0], ["stranger"], ["turn-2", 896, 0], ["turn-2"]]

#: Name: classes that must be among the scheduler's own.
CLASSES = {
    "default": ["BalanceScheduler"],
    "async": ["AsyncScheduler"],
    "balance": ["BalanceScheduler"],
    "recompute": ["RecomputeScheduler"],
    "dynamic batch": ["SchedulerDynamicBatch"],
}


@pytest.mark.parametrize("name", CLASSES)
def test_schedulers(pair: tuple[str, str], result: Any, name: str) -> None:
    version, _ = pair
    if name == "recompute" and version != "0.22.1rc1":
        pytest.skip("ignored on a prefiller from 0.23.0 on")
    if name == "dynamic batch" and version == "0.30.0rc2":
        pytest.skip("gone from 0.30 on")
    found = part(result, f"scheduler {name}")
    assert set(CLASSES[name]) <= set(found["class"])
    assert "Scheduler" in found["class"]
    assert found["records"] == TWO_TURNS
    assert found["counted"] == [3, 896, 0, 7]
    assert found["degraded"] == {}
    assert found["unhashed"] == ("head" if version == "0.30.0rc2" else "tail")


def test_all_schedulers_are_in_the_table(pair: tuple[str, str], result: Any) -> None:
    version, order = pair
    good = [name for name in CLASSES if result[f"scheduler {name}"].get("records") == TWO_TURNS]
    assert {"default", "async", "balance"} <= set(good)
    if order == ORDERS[0]:
        compatibility.record("ascend", version, with_vLLM=wheels.ASCEND[version], schedulers=", ".join(good))
    else:
        compatibility.record("ascend", version, either_order="same records")


def test_prefillers_blocks_are_released_when_fetched(pair: tuple[str, str], result: Any) -> None:
    """MooncakeConnectorV1: not when the prompt is done; in the order of the fetches; a pinned prompt still hits."""
    found = part(result, "producer")
    assert found["released_at_finish"] == []
    assert (found["free_while_pinned"], found["held_while_pinned"]) == (64 - 2 * 8, 2)
    assert (found["hit_of_pinned"], found["pinned_seen"]) == (896, 16)
    assert found["releases"] == [["b"], ["b", "a-again"], ["b", "a-again", "a"]]
    assert (found["free_after"], found["held_after"]) == (64, 0)
    assert found["counted"] == [3, 896, 0, 7]
    compatibility.record("ascend", pair[0], producer_s_release="when the decoder has fetched")


def test_prompts_that_wait_for_pinned_blocks_count_once(pair: tuple[str, str], result: Any) -> None:
    found = part(result, "overloaded_producer")
    assert found["before"] == ["p0", "p1"]
    assert found["after"] == ["p0", "p1", "waits"]
    assert found["counted"] == [3, 0, 0, 0]


def test_external_hits_are_kept_apart(pair: tuple[str, str], result: Any) -> None:
    """AscendStore: what the pool has is no hit of the cache, until it has been loaded into it."""
    found = part(result, "external")
    assert found["admitted"] == [["turn-1", 0, 512], ["turn-2", 896, 0]]
    assert found["counted"] == [2, 896, 512, 7]
    compatibility.record("ascend", pair[0], external_hits="apart from local ones")


def test_caching_off_is_said(pair: tuple[str, str], result: Any) -> None:
    """As vLLM-Ascend's own pages of prefill-decode disaggregation start a prefiller."""
    found = part(result, "caching_off")
    assert "--no-enable-prefix-caching" in found["degraded"]["prefix_caching_off"]
    assert found["counted"] is None
    compatibility.record("ascend", pair[0], prefix_caching_off="said")


def test_latent_attention_in_either_order(pair: tuple[str, str], result: Any) -> None:
    assert part(result, "mla")["hits"] == [0, 384]


@pytest.mark.parametrize(
    ("listed", "missing"),
    [
        ("hitratio", ["ascend", *GENERAL]),
        ("ascend,hitratio", GENERAL),
        (",".join(["ascend", "hitratio", *GENERAL]), []),
        (None, []),
    ],
)
def test_narrow_list_is_said_with_one_that_works(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, missing: list[str]
) -> None:
    version = PAIRS[0][0]
    try:
        monkeypatch.syspath_prepend(wheels.ascend(version))
    except wheels.UnavailableError as error:
        pytest.skip(str(error))
    words = advice({} if listed is None else {"VLLM_PLUGINS": listed})
    if not missing:
        assert words is None
        return
    assert words is not None
    assert "\n" not in words
    assert words.startswith(f"VLLM_PLUGINS leaves out {', '.join(missing)} of vllm-ascend")
    works = words.rsplit("VLLM_PLUGINS=", 1)[1]
    assert set(works.split(",")) == {"hitratio", "ascend", *GENERAL}
    assert advice({"VLLM_PLUGINS": works}) is None


@pytest.mark.parametrize("listed", ["hitratio", ",".join(["hitratio", "ascend", *GENERAL])])
def test_vllm_agrees_about_the_list(listed: str) -> None:
    """The real plugin loading: without the platform's name there is no NPU, and our line is in the log, once."""
    code = (
        "from vllm.plugins import load_general_plugins; from vllm.platforms import current_platform;"
        "load_general_plugins(); print(type(current_platform).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(PAIRS[0][0]) | {"VLLM_PLUGINS": listed},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = [line for line in (done.stdout + done.stderr).splitlines() if "VLLM_PLUGINS leaves out" in line]
    platform = done.stdout.splitlines()[-1]
    if listed == "hitratio":
        assert platform != "NPUPlatform"
        assert len(said) == 1
    else:
        assert platform == "NPUPlatform"
        assert said == []

"""One trace, one set of reported cases, every vLLM from 0.18 to 0.33: same records, exact observed ratios."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import compatibility, wheels
from tests.support.engines import ALL_ENGINES
from tests.support.random_schedule import SCHEDULES
from tests.support.repository import python_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

#: `make test` runs one release of either kind, `make test-engines` all.
IN_EVERY_RUN = ("0.22.1", "0.24.0")
VERSIONS = tuple(wheels.VLLM) if ALL_ENGINES else IN_EVERY_RUN

#: The first release that takes partly filled blocks again at once (docs/vllm.md#the-free-queue-by-version).
HEAD_FROM = (0, 24)

#: The first release whose own counters count admissions, not lookups (docs/vllm.md#one-request-one-admission).
ADMISSIONS_FROM = (0, 27)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def tail(version: str) -> bool:
    return _numbers(version) < HEAD_FROM


@pytest.fixture(scope="session")
def results(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results by version, run when first asked for."""
    folder = tmp_path_factory.mktemp("versions")

    class Results(dict[str, Any]):
        def __missing__(self, version: str) -> Any:
            self[version] = run(version, tiny_model, folder / f"{version}.json")
            return self[version]

    return Results()


def run(version: str, model: Path, result: Path) -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the Python of a vLLM needs its torch, which is not installed here")
    try:
        path = python_path(wheels.vllm(version), wheels.extras())
    except wheels.UnavailableError as error:
        pytest.skip(str(error))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HITRATIO_")} | {
        "PYTHONPATH": path,
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.one_version", str(model), str(result)],
        env=environment,
        cwd=result.parent,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(result.read_text())
    found["log"] = done.stdout + done.stderr
    return found


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def result(version: str, results: dict[str, Any]) -> Any:
    return results[version]


def test_it_is_that_version(version: str, result: Any) -> None:
    assert Path(result["path"]) == wheels.vllm(version) / "vllm"
    assert result["version"].split("+")[0] == version


def test_probe_finds_where_partly_filled_blocks_go(version: str, result: Any) -> None:
    facts = result["facts"]
    assert facts["unhashed"] == ("tail" if tail(version) else "head")
    assert facts["capacity_blocks"] == 64
    assert (facts["block_size"], facts["dropped_blocks"], facts["not_modelled"]) == (32, 0, None)
    compatibility.record("vllm", version, partly_filled_blocks_go_to=f"the {facts['unhashed']} of the free queue")


@pytest.mark.parametrize("pool", ["roomy", "evicting", "held"])
def test_observed_is_the_exact_lru(version: str, result: Any, pool: str) -> None:
    found = result[pool]
    assert found["prompts"] == 220
    assert found["observed"] == found["exact"]
    assert 0 < found["observed"] <= found["ceiling"]
    if pool == "roomy":
        assert found["observed"] == found["ceiling"]
    else:
        assert found["observed"] < found["ceiling"] - 0.1
    if pool == "evicting":
        compatibility.record("vllm", version, observed___exact_LRU=f"{found['observed']:.6f}")


@pytest.mark.parametrize("pool", ["roomy", "evicting", "held", "scheduler"])
def test_records_are_those_of_every_other_version(
    version: str, result: Any, results: dict[str, Any], pool: str
) -> None:
    """Where nothing is evicted, of all; where something is, of those with the same treatment of unhashed blocks."""
    alike = [other for other in VERSIONS if pool in ("roomy", "scheduler") or tail(other) == tail(version)]
    kinds = [record[0] for record in result[pool]["records"]]
    assert kinds.count("admit") == 220
    for other in alike:
        assert result[pool]["records"] == results[other][pool]["records"], other


def test_the_tail_costs_hits(results: dict[str, Any]) -> None:
    """The one thing that differs between the releases is worth points of hit ratio."""
    assert results["0.22.1"]["evicting"]["observed"] < results["0.24.0"]["evicting"]["observed"] - 0.005


def test_scheduler_agrees_with_vllms_own_counters(version: str, result: Any) -> None:
    found = result["scheduler"]
    assert found["class"][-3:] == ["Scheduler", "SchedulerInterface", "ABC"]
    assert found["own"] == {
        "requests": 220,
        "queries": found["prompt_tokens"],
        "hits": found["hit_tokens"],
    }
    assert found["prompts"] == 220
    assert found["degraded"] == {}
    compatibility.record("vllm", version, same_records="yes")


def test_waiting_and_preempted_prompts_count_once(version: str, result: Any) -> None:
    """Cases 4 and 5: nothing in common, so few blocks that prompts are looked up again and again."""
    found = result["pressure"]
    assert found["first_admissions"] == [1] * 30
    assert found["readmissions"] == found["uncounted"] > 0
    assert found["readmission_hits"] > 0  # what would be mistaken for hits of prompts
    assert (found["prompts"], found["hit_blocks"], found["ceiling_blocks"]) == (30, 0, 0)
    if _numbers(version) >= ADMISSIONS_FROM:
        assert found["own_lookups"] == 30
    else:
        assert found["own_lookups"] > 300
    compatibility.record("vllm", version, lookups=str(found["own_lookups"]))


def test_what_an_aborted_prefill_did_not_compute_is_not_expected(result: Any) -> None:
    """Prompts aborted after some of their chunks, then sent again: hit is what was computed, and no more is missed."""
    found = result["broken off"]
    assert found["own"]["hits"] == found["hit_tokens"] == found["left"]
    assert found["ceiling_tokens"] == found["shadow_tokens"] == found["left"]
    assert found["unexplained"] == 0


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_hit_is_the_exact_lrus_in_random_traffic(version: str, result: Any, name: str) -> None:
    found = result["schedules"][name]
    assert found["admissions"] > found["prompts"] * 0.4
    assert found["hit_blocks"] > 0
    if SCHEDULES[name].threshold:
        assert found["in_flight"] > 0
    different = len(found["different"])
    if SCHEDULES[name].answers == 1:
        assert not different, found["different"]
    # What answers under way may do: docs/model.md#copies-and-content-in-flight.
    assert different <= 0.002 * found["admissions"], found["different"]
    compatibility.record("shadow", name, **{version.replace(".", "_"): f"{different} of {found['admissions']:,}"})


def test_a_prompt_that_arrives_in_pieces_is_looked_up_once(result: Any) -> None:
    """vLLM looks the first piece up and lets the rest follow; what all of it left can be hit."""
    found = result["streaming"]
    assert (found["prompts"], found["prompt_tokens"]) == (2, 400)
    assert found["hit_tokens"] == found["ceiling_tokens"] == 192
    assert found["own"] == {"requests": 2, "queries": 400, "hits": 192}
    assert found["degraded"] == {}


def test_sleep_drops_the_cache_and_is_no_loss_of_the_engines(result: Any) -> None:
    """Four prompts three times over, asleep in the middle: the second time they hit, and they are counted once."""
    found = result["asleep"]
    assert (found["prompts"], found["resets"]) == (12, 1)
    assert found["hit_tokens"] == found["own_hits"] == 2 * 4 * 288
    assert found["ledger"]["unexplained/missing"] == 0
    assert found["degraded"] == {}


def test_images_are_part_of_a_blocks_identity(result: Any) -> None:
    """The text before the image is shared, what holds or follows it is not."""
    found = result["cases"]["images"]
    assert found["hits"] == [0, 64, 192, 192]
    assert found["ceiling_blocks"] == found["hit_blocks"] == 2 + 6 + 6


def test_flags_are_accepted_and_stay_out_of_the_namespace(version: str, result: Any) -> None:
    found = result["command_line"]
    environment = found["environment"]
    assert environment.pop("HITRATIO_SNAPSHOT_DIR")
    assert environment == {
        "HITRATIO_ENABLED": "1",
        "HITRATIO_TARGET": "0.8",
        "HITRATIO_PORT": "0",
        "HITRATIO_WINDOW": "30",
    }
    assert found["namespace"] == []
    assert found["refused"] == [2, 2, 2]
    assert result["scheduler"]["target"] == 0.8
    compatibility.record("vllm", version, flags="accepted")


#: Reported case: hits in tokens, prompt after prompt.
HITS = {
    "1": [0, 0, 0, 528, 0, 528],
    "2": [0, 0, 0, 7168, 0, 28672, 0, 46592],
    "3": [0, 0, 0, 0],
    "6": [0, 0] + [2976, 0] * 8 + [2976],
    "10": [0, 0, 64],
    # Two ranks of decode context parallelism: a block holds 64 tokens.
    "context parallel": [0, 192, 128],
    "15": [0, 0, 0, 4288, 0, 8576, 0, 12864, 0, 15008],
}


@pytest.mark.parametrize("case", HITS)
def test_hits_of_reported_cases(result: Any, case: str) -> None:
    """What vLLM serves, what the counters say, and what the model calls reusable are the same blocks."""
    found = result["cases"][case]
    assert found["hits"] == HITS[case]
    assert found["counted"] == sum(HITS[case])
    assert found["requests"] == len(HITS[case])
    if case != "10":  # the one with an eviction
        assert found["ceiling_blocks"] == found["hit_blocks"]
    assert found["degraded"] == {}
    assert found["dropped"] == (1 if case == "15" else 0)


def test_ratio_is_of_sums(result: Any) -> None:
    """Case 6: 10 long prompts and 9 tiny ones; neither the mean of ratios nor that of the last prompt."""
    found = result["cases"]["6"]
    assert found["prompt_blocks"] == 10 * 94 + 9 * 2
    assert found["hit_blocks"] == 9 * 93


def test_tail_block_goes_first(result: Any) -> None:
    """Case 10: two blocks are needed, one was partly filled; the last full one goes, so two of three are left."""
    assert result["cases"]["10"]["ceiling_blocks"] == 3


def test_rewritten_history(version: str, result: Any) -> None:
    """Case 11: what follows the dropped thinking can't be reused; a history that is kept can, answer included."""
    found = result["cases"]["11"]
    assert found["rewritten"] == 2000 // 32 * 32
    assert found["kept"] == (2000 + 800 + 300 - 1) // 32 * 32
    assert found["ceiling_blocks"] * 32 == found["rewritten"] + found["kept"]
    compatibility.record("vllm", version, reported_cases="1-6, 10, 11, 14-16")


@pytest.mark.parametrize("case", ["14", "14 adapters"])
def test_salts_and_adapters_are_namespaces(result: Any, case: str) -> None:
    found = result["cases"][case]
    assert found["hits"] == [0] * 4 + [192] * 4
    assert found["ceiling_blocks"] == 4 * 6
    assert found["conversations"] == 4


def test_reset_is_said_and_nothing_is_expected_of_what_is_gone(result: Any) -> None:
    found = result["cases"]["16"]
    assert found["hits"] == [0] * 5 + [192] * 5 + [0] * 5
    assert found["ceiling_blocks"] == found["hit_blocks"] == 30
    assert (found["resets"], found["said_when"]) == (1, True)


def test_requests_that_may_not_read_are_no_prompts_of_the_ratio(result: Any) -> None:
    found = result["cases"]["prompt_logprobs"]
    assert found["hits"] == [0, 192, 0, 192]
    assert (found["requests"], found["uncounted"]) == (2, 2)
    assert found["hit_blocks"] == found["ceiling_blocks"] == 12


@pytest.mark.parametrize("cache", ["hybrid", "sliding", "mamba"])
def test_other_caches_are_named_observed_and_not_predicted(result: Any, cache: str) -> None:
    found = result["cases"][cache]
    assert found["not_modelled"].endswith("observed figures only, no prediction")
    assert found["counted"] == found["hits"]
    if cache != "mamba":  # its states are cached at chunk ends only: the whole prompt in one chunk never hits
        assert found["hits"] > 0
    assert "hitratio_observed_ratio" in found["metrics"]
    for word in ("predicted", "curve", "recommended", "infinite_cache", "divergence", "target", "characteristic"):
        assert not [name for name in found["metrics"] if word in name]


def test_caching_off_is_said_and_nothing_is_zero(result: Any) -> None:
    found = result["cases"]["off"]
    assert found["hits"] == [0, 0]
    assert found["counted"] is None
    assert "--no-enable-prefix-caching" in found["degraded"]["prefix_caching_off"]


def test_nothing_of_ours_was_complained_about(result: Any) -> None:
    assert "Traceback" not in result["log"]

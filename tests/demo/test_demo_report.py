"""The demo without a server: a whole run in virtual time, and what its checks say of good and of bad figures."""

import json
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from examples.demo.__main__ import main
from examples.demo.outcome import Look, Outcome, Sample
from examples.demo.phases import Phases
from examples.demo.report import Report, as_json, table
from examples.demo.settings import Settings
from vllm_hitratio_plugin.model.workload import Workload
from vllm_hitratio_plugin.snapshot import OUTCOMES, Counters, Estimate, VllmCounters

TOP_KEYS = {
    *("mode", "reason", "vllm_version", "plugin_version", "python_version", "cores", "seconds", "phases"),
    *("observed", "predicted", "predicted_stderr", "gap", "stderr", "ceiling", "characteristic_time_seconds"),
    *("capacity_blocks", "block_size_tokens", "target", "recommended_blocks", "observed_at_recommended"),
    *("predicted_at_recommended", "requests", "conversations", "prompt_blocks", "fates", "prompt_blocks_total"),
    *("fates_total", "vllm_hits_tokens", "plugin_hits_tokens", "workload", "curve", "checks", "settings", "trials"),
}
COUNTED = {("hit", "local"): 300, ("partial", "tail"): 50, ("compulsory", "new"): 330, ("capacity", "evicted"): 320}
BLOCKS = [COUNTED.get(outcome, 0) for outcome in OUTCOMES]


def outcome(estimate: dict[str, object] | None = None, **changes: object) -> Outcome:
    figures: dict[str, object] = {
        "observed": 0.30,
        "predicted": {"reuse_time": 0.305, "mean_field": 0.29},
        "divergence": -0.005,
        "divergence_stderr": 0.004,
        "ceiling": 0.61,
        "recommended_blocks": 1699.2,
        "curve": {512: 0.2, 1024: 0.4, 2048: 0.55},
        "outcomes": BLOCKS,
        **(estimate or {}),
    }
    counters = Counters(prompt_blocks=1000, hit_tokens=1000, prompt_tokens=3000, outcomes=BLOCKS)
    whole = Estimate(110.0, 90.0, 2100, 5000, True, 850, **figures)  # type: ignore[arg-type]
    window = Look(110.0, whole, counters, 1000.0)
    good = Outcome(
        capacity_blocks=850,
        sample=Sample(90.0, 2100, 480, 15.0, 15.0, latency_p50=0.013, latency_p99=0.15),
        window=window,
        looks=[window],
        final=counters,
        block_bytes=16384,
        vllm=VllmCounters("m", "0", hits=1000.0, queries=3000.0),
        exporter_agrees=True,
    )
    return replace(good, **changes)  # type: ignore[arg-type]


def second(observed: float = 0.49) -> Outcome:
    return outcome({"observed": observed}, capacity_blocks=1700)


def report(first: Outcome, recommended: Outcome | None) -> Report:
    return Report(Settings(), None, first, recommended, Workload(3.4, 77.0, 47.0, 27.0, 4.4), {"a phase": 1.0}, 400.0)


def failed(report: Report) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


def test_good_figures_pass() -> None:
    assert failed(report(outcome(), second())) == []


@pytest.mark.parametrize(
    ("estimate", "name"),
    [
        ({"observed": 0.33}, "observed is what was predicted"),
        ({"predicted": {}}, "observed is what was predicted"),
        ({"divergence": -0.013}, "the difference is within its error"),
        ({"divergence_stderr": None}, "the difference is within its error"),
        ({"ceiling": 0.35}, "the hit ratio is well between 0 and its ceiling"),
        ({"outcomes": [299, *BLOCKS[1:]]}, "the outcomes add up to the prompt blocks, at 850 blocks"),
        ({"outcomes": []}, "the outcomes add up to the prompt blocks, at 850 blocks"),
    ],
)
def test_bad_estimates_fail(estimate: dict[str, object], name: str) -> None:
    assert name in failed(report(outcome(estimate), second()))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (
            {"vllm": VllmCounters("m", "0", hits=1001.0, queries=3000.0)},
            "the plugin counts as vLLM does, at 850 blocks",
        ),
        ({"vllm": None}, "the plugin counts as vLLM does, at 850 blocks"),
        ({"final": Counters(prompt_blocks=1000)}, "the outcomes add up to the prompt blocks, at 850 blocks"),
        ({"exporter_agrees": False}, "the engine's own exporter says the same as the server"),
        ({"degraded": ["fit"]}, "the plugin is not degraded"),
    ],
)
def test_bad_trials_fail(changes: dict[str, Any], name: str) -> None:
    assert name in failed(report(outcome(**changes), second()))


def test_a_target_that_is_missed_or_was_not_tried_fails() -> None:
    assert failed(report(outcome(), second(0.46))) == ["the recommended capacity reaches the target"]
    assert failed(report(outcome({"recommended_blocks": None}), None)) == [
        "the recommended capacity reaches the target"
    ]


def test_too_few_requests_or_a_failed_one_fail() -> None:
    sample = outcome().sample
    assert "enough was measured" in failed(report(outcome(sample=replace(sample, requests=1499)), second()))
    broken = replace(second(), sample=replace(sample, failures=1, first_failure="HTTP 500"))
    assert "no request failed" in failed(report(outcome(), broken))


def test_what_was_not_measured_is_null_and_a_dash() -> None:
    absent: dict[str, object] = {
        "observed": None,
        "divergence": None,
        "divergence_stderr": None,
        "ceiling": None,
        "curve": {},
    }
    bare = report(outcome(absent), None)
    written = json.loads(json.dumps(as_json(bare), allow_nan=False))
    assert written["observed"] is None
    assert written["stderr"] is None
    assert "observed                           -" in table(bare)


@pytest.mark.parametrize(("seconds", "busy"), [(0.013, False), (1.4, True)])
def test_a_machine_that_is_too_busy_is_said(seconds: float, busy: bool) -> None:
    first = outcome(sample=replace(outcome().sample, latency_p50=seconds))
    assert ("The machine is too busy" in table(report(first, second()))) == busy


def test_a_phase_is_timed_even_if_it_fails() -> None:
    phases = Phases()
    with pytest.raises(RuntimeError), phases.phase("start"):
        raise RuntimeError
    assert list(phases.seconds) == ["start"]
    assert 0 <= phases.seconds["start"] <= phases.total


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    with redirect_stdout(StringIO()) as output:
        assert main(["--virtual", "--output", str(folder)]) == 0
    return output.getvalue()


@pytest.fixture(scope="module")
def written(printed: str, folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "report.json").read_text())
    return found


class TestVirtualRun:
    def test_says_that_it_is_virtual(self, printed: str, written: dict[str, object]) -> None:
        assert "no real vLLM here (--virtual)" in printed
        assert written["mode"] == "virtual-time"
        assert written["vllm_version"] is None
        assert written["vllm_hits_tokens"] is None

    def test_passes_every_check(self, printed: str) -> None:
        assert "FAIL" not in printed
        assert printed.count("PASS") == 9

    def test_writes_every_key(self, written: dict[str, object]) -> None:
        assert set(written) == TOP_KEYS

    def test_measures_enough(self, written: dict[str, object]) -> None:
        assert written["requests"] >= 1500  # type: ignore[operator]
        assert written["conversations"] >= 400  # type: ignore[operator]
        assert written["stderr"] <= 0.007  # type: ignore[operator]

    @pytest.mark.parametrize("suffix", ["", "_total"])
    def test_outcomes_add_up_to_the_prompt_blocks(self, written: dict[str, object], suffix: str) -> None:
        fates: dict[str, int] = written[f"fates{suffix}"]  # type: ignore[assignment]
        assert list(fates) == [f"{outcome}/{reason}" for outcome, reason in OUTCOMES]
        assert sum(fates.values()) == written[f"prompt_blocks{suffix}"]
        assert fates["capacity/evicted"] > 0

    def test_hits_are_the_observed_ratio(self, written: dict[str, object]) -> None:
        fates: dict[str, int] = written["fates"]  # type: ignore[assignment]
        assert fates["hit/local"] / written["prompt_blocks"] == pytest.approx(written["observed"])  # type: ignore[operator]

    def test_draws_a_picture(self, printed: str, folder: Path) -> None:
        assert (folder / "hitratio.png").read_bytes().startswith(b"\x89PNG")

    def test_times_every_phase(self, printed: str, written: dict[str, object]) -> None:
        phases: dict[str, float] = written["phases"]  # type: ignore[assignment]
        assert list(phases) == ["load drawn", "server-1: load", "server-2: load"]
        assert all(f"  {name}" in printed for name in phases)
        assert sum(phases.values()) <= written["seconds"]  # type: ignore[operator]


def test_a_target_out_of_reach_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--virtual", "--target", "0.9", "--output", str(tmp_path)])
    assert code == 1
    assert "Recommended for a hit ratio of 0.9: none" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())["recommended_blocks"] is None


@pytest.mark.parametrize(
    "arguments", [["--target", "1.7"], ["--capacity", "5"], ["--port", "99999"], ["--rate", "0"], ["--seed", "-1"]]
)
def test_bad_options_are_one_sentence_and_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert repr(arguments[1]) in capsys.readouterr().err.splitlines()[-1]

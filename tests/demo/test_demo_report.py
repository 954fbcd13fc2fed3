"""The demo without a server: a whole run in virtual time, and what its checks say of good and of bad figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from examples.demo.__main__ import main
from examples.demo.outcome import Outcome, Sample
from examples.demo.report import Report, as_json, checks, table
from examples.demo.settings import Settings
from vllm_hitratio_plugin.model.workload import Workload

CONTRACT = {
    "mode",
    "observed",
    "predicted",
    "stderr",
    "ceiling",
    "capacity_blocks",
    "recommended_blocks",
    "target",
    "observed_at_recommended",
    "requests",
    "conversations",
    "vllm_version",
    "vllm_hits_tokens",
    "plugin_hits_tokens",
}


def outcome(**changes: object) -> Outcome:
    sample = Sample(140.0, 2100, 480, 15.0, 15.0, 0, None, 0, 0.013, 0.15)
    good = Outcome(
        capacity_blocks=850,
        sample=sample,
        observed=0.30,
        predicted={"reuse_time": 0.305, "mean_field": 0.29},
        predicted_stderr={"reuse_time": 0.01, "mean_field": 0.01},
        gap=-0.005,
        divergence_stderr=0.004,
        ceiling=0.61,
        characteristic_time=4.0,
        arrival_rate=3.4,
        history_workload=77.0,
        reusable_workload=47.0,
        lifetime_blocks=27.0,
        turns=4.4,
        target=0.5,
        target_reachable=True,
        recommended_blocks=1700,
        recommended_bytes=27e6,
        curve={512: 0.2, 1024: 0.4, 2048: 0.55},
        plugin_hit_tokens=1000.0,
        plugin_prompt_tokens=3000.0,
        engine_hit_tokens=1000.0,
        engine_prompt_tokens=3000.0,
        exporter_agrees=True,
        degraded=[],
        series=[],
    )
    return replace(good, **changes)  # type: ignore[arg-type]


def report(first: Outcome, second: Outcome | None) -> Report:
    return Report(Settings(), "vllm", None, first, second, Workload(3.4, 77.0, 47.0, 27.0, 4.4), 400.0)


def failed(report: Report) -> list[str]:
    return [check.name for check in checks(report) if not check.passed]


def test_good_figures_pass() -> None:
    assert failed(report(outcome(), outcome(capacity_blocks=1700, observed=0.49))) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"observed": 0.33}, "observed is what was predicted"),
        ({"predicted": {"reuse_time": None, "mean_field": None}}, "observed is what was predicted"),
        ({"gap": -0.013}, "the difference is within its error"),
        ({"gap_stderr": None}, "the difference is within its error"),
        ({"engine_hit_tokens": 1001.0}, "the plugin counts as vLLM does, at 850 blocks"),
        ({"plugin_hit_tokens": None}, "the plugin counts as vLLM does, at 850 blocks"),
        ({"exporter_agrees": False}, "the engine's own exporter says the same as the server"),
        ({"degraded": ["fit"]}, "the plugin is whole"),
        ({"ceiling": 0.35}, "the hit ratio is well between 0 and its ceiling"),
    ],
)
def test_bad_figures_fail(changes: dict[str, object], name: str) -> None:
    assert name in failed(report(outcome(**changes), outcome(capacity_blocks=1700, observed=0.49)))


def test_a_target_that_is_missed_or_was_not_tried_fails() -> None:
    assert failed(report(outcome(), outcome(capacity_blocks=1700, observed=0.46))) == [
        "the recommended capacity reaches the target"
    ]
    assert failed(report(outcome(recommended_blocks=None), None)) == ["the recommended capacity reaches the target"]


def test_too_few_requests_or_a_failed_one_fail() -> None:
    sample = outcome().sample
    few = outcome(sample=replace(sample, requests=1499))
    assert "enough was measured" in failed(report(few, outcome(observed=0.5)))
    broken = outcome(sample=replace(sample, failures=1, first_failure="HTTP 500"))
    assert "no request failed" in failed(report(outcome(), replace(broken, observed=0.5)))


def test_what_was_not_measured_is_null_and_a_dash() -> None:
    bare = report(outcome(observed=None, gap=None, divergence_stderr=None, ceiling=None, curve={}), None)
    assert json.loads(json.dumps(as_json(bare), allow_nan=False))["observed"] is None
    assert "observed                           -" in table(bare)


def test_virtual_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--virtual", "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "no real vLLM here (--virtual)" in printed
    assert "FAIL" not in printed
    assert code == 0
    written = json.loads((tmp_path / "report.json").read_text())
    assert set(written) >= CONTRACT
    assert written["mode"] == "virtual-time"
    assert written["vllm_version"] is None
    assert written["vllm_hits_tokens"] is None
    assert written["requests"] >= 1500
    assert written["conversations"] >= 400
    assert abs(written["observed"] - written["predicted"]["reuse_time"]) <= 0.02
    assert (tmp_path / "hitratio.png").stat().st_size > 10_000


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

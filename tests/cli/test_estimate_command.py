"""``hitratio estimate``: the reference values, the inverse, conversations from a file."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_hitratio_plugin.cli import main
from vllm_hitratio_plugin.model.bounds import FiniteBounds
from vllm_hitratio_plugin.model.conversation_sample import ConversationSample
from vllm_hitratio_plugin.model.interarrival import Exponential

MEANS = ["--history-workload", "38.9092", "--reusable-workload", "22.5178", "--lifetime-blocks", "12.922"]


def estimate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["estimate", *arguments, "--json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    answer: dict[str, Any] = json.loads(output.out)
    return answer


@pytest.mark.parametrize(
    ("rate", "gap", "hit_ratio", "survival"),
    [
        ("1.5", "90", 0.247641, 50.2608),
        ("1.5", "135", 0.171784, 47.5413),
        ("1.5", "240", 0.099654, 45.3548),
        ("0.5", "135", 0.425302, 179.2289),
        ("2.0", "135", 0.131183, 34.7027),
    ],
)
def test_reference_values(
    capsys: pytest.CaptureFixture[str], rate: str, gap: str, hit_ratio: float, survival: float
) -> None:
    answer = estimate(capsys, "--arrival-rate", rate, "--mean-interarrival", gap, *MEANS, "--capacity-blocks", "2275")
    assert answer["hit_ratio"] == pytest.approx(hit_ratio, abs=1e-6)
    assert answer["characteristic_time_s"] == pytest.approx(survival, abs=1e-3)
    assert answer["reuse_potential"] == pytest.approx(22.5178 / 38.9092)
    assert answer["capacity_for_target_blocks"] is None
    assert answer["reason"] == "no --target was given"


def test_the_capacity_for_a_target_reaches_it_and_one_block_less_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    setting = ["--arrival-rate", "1.5", "--mean-interarrival", "135", *MEANS]
    answer = estimate(capsys, *setting, "--capacity-blocks", "2275", "--target", "0.3")
    needed = answer["capacity_for_target_blocks"]
    assert answer["reason"] is None
    assert isinstance(needed, int)
    assert estimate(capsys, *setting, "--capacity-blocks", str(needed))["hit_ratio"] >= 0.3
    assert estimate(capsys, *setting, "--capacity-blocks", str(needed - 1))["hit_ratio"] < 0.3


def test_a_target_out_of_reach_gets_a_reason_and_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    setting = [
        "--arrival-rate",
        "1.5",
        "--mean-interarrival",
        "135",
        *MEANS,
        "--capacity-blocks",
        "2275",
        "--target",
        "0.6",
    ]
    answer = estimate(capsys, *setting)
    assert answer["capacity_for_target_blocks"] is None
    assert "above the reuse potential" in answer["reason"]
    assert main(["estimate", *setting]) == 0
    assert "above the reuse potential" in capsys.readouterr().out


def test_other_laws_of_the_interarrival_times(capsys: pytest.CaptureFixture[str]) -> None:
    setting = ["--arrival-rate", "1.5", *MEANS, "--capacity-blocks", "2275"]
    plain = estimate(capsys, *setting, "--mean-interarrival", "135")
    same = estimate(capsys, *setting, "--interarrival", "weibull:135:1")
    other = estimate(capsys, *setting, "--interarrival", "lognormal:135:1.5")
    assert same["hit_ratio"] == pytest.approx(plain["hit_ratio"])
    assert other["hit_ratio"] > plain["hit_ratio"]
    assert other["workload"]["mean_gap_s"] == pytest.approx(135)


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["estimate", "--arrival-rate", "1.5", "--mean-interarrival", "90", *MEANS, "--capacity-blocks", "2275"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["hit", "ratio", "24.76", "%"]
    assert "50.3 s" in lines[2]


def test_means_from_turn_lengths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 64: R = 2, 3, 5 and 1, the example of the generator's tests."""
    content = "[[100, 60], [10, 90], [40, 5]]\n[[64, 1]]\n"
    path = tmp_path / "turns.jsonl"
    path.write_text(content)
    setting = ["--arrival-rate", "1", "--mean-interarrival", "10", "--capacity-blocks", "20", "--block-size", "64"]
    workload = estimate(capsys, "--conversations", str(path), *setting)["workload"]
    assert workload["history_workload"] == 5.5
    assert workload["reusable_workload"] == 1.5
    assert workload["lifetime_blocks"] == 3
    assert workload["turns"] == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedRandom(io.BytesIO(content.encode()))))  # type: ignore[arg-type, type-var, unused-ignore]
    longer = estimate(capsys, "--conversations", "-", *setting, "--minimum-turns", "2")["workload"]
    assert longer["history_workload"] == 10
    assert main(["estimate", "--conversations", str(path), *setting, "--minimum-turns", "9"]) == 2
    assert "no conversation of 9 turns or more" in capsys.readouterr().err


def test_text_of_conversations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text("[[100, 60], [10, 90]]\n")
    setting = [
        "--arrival-rate",
        "1",
        "--mean-interarrival",
        "10",
        "--capacity-blocks",
        "20",
        "--conversations",
        str(path),
    ]
    assert main(["estimate", *setting]) == 0
    assert "E[M]" in capsys.readouterr().out


def test_bounds_are_those_of_the_theorems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text("[[300, 600], [300, 90], [40, 5]]\n[[64, 1]]\n")
    setting = ["--arrival-rate", "1e5", "--mean-interarrival", "10", "--capacity-blocks", "1e7"]
    answer = estimate(capsys, "--conversations", str(path), *setting, "--bounds")
    sample = ConversationSample([[3, 10, 11], [1]])
    expected = FiniteBounds(sample, Exponential(10.0), 1e5, 1e7)
    assert set(answer["bounds"]) == set(expected.all())
    assert answer["bounds"]["hit_ratio_exact_tail"]["value"] == expected.hit_ratio(tail="exact").value < 1
    assert answer["bounds"]["displacement"]["equation"] == 16
    assert "bounds" not in estimate(capsys, "--conversations", str(path), *setting)
    assert main(["estimate", "--conversations", str(path), *setting, "--bounds"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("(33)" in line for line in lines) == 2
    assert main(["estimate", *setting, *MEANS, "--bounds"]) == 2
    assert "--bounds is for --conversations" in capsys.readouterr().err

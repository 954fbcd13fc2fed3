"""``hitratio experiment`` at small scale: reports, CSV, figures."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_hitratio_plugin.cli import main


def experiment(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["experiment", *arguments, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_paper_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "folder"
    answer = experiment(capsys, "paper-1", "--conversations", "600", "--seeds", "2", "--out", str(out))
    assert [result["mean_gap_s"] for result in answer["results"]] == [90, 105, 120, 135, 150, 165, 180, 210, 240]
    for result in answer["results"]:
        assert result["capacity_blocks"] == 2275
        assert set(result["predicted"]) == {"mean_field", "mean_field_prior", "reuse_time"}
        assert result["error"] == pytest.approx(result["predicted"]["reuse_time"] - result["observed"])
        assert abs(result["error"]) < 0.01
        assert result["characteristic_time_s"] > 0
        assert [run["seed"] for run in result["runs"]] == [0, 1]
    assert set(answer["summary"]["reuse_time"]) == {"mean_absolute", "max_absolute", "mean_relative", "max_relative"}
    names = ["paper-1.csv", *(f"paper-1-{name}.png" for name in ("hit-ratio", "absolute-error", "relative-error"))]
    assert answer["files"] == [str(out / name) for name in names]
    with (out / "paper-1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    assert float(rows[0]["reuse_time_absolute_error"]) == pytest.approx(
        abs(float(rows[0]["reuse_time"]) - float(rows[0]["observed"]))
    )
    for name in names[1:]:
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_paper_2_from_turn_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = tmp_path / "turns.jsonl"
    lengths.write_text("[[200, 300], [50, 300], [80, 10]]\n[[9, 9]]\n[[500, 900], [1, 700]]\n")
    arguments = ["paper-2", "--conversations", "300", "--turn-lengths", str(lengths), "--unhashed", "head"]
    answer = experiment(capsys, *arguments)
    slow = experiment(capsys, *arguments, "--response-time", "fixed:100", "--service-time", "1")
    for plain, waited in zip(answer["results"], slow["results"], strict=True):
        assert waited["measured_mean_gap_s"] > max(100, plain["measured_mean_gap_s"])
        assert waited["runs"][0]["mean_pinned_blocks"] > 0
    assert [result["arrival_rate"] for result in answer["results"]] == [0.5, 0.75, 1, 1.25, 1.5, 1.75, 2]
    assert answer["files"] == []
    assert answer["unhashed"] == "head"
    assert main(["experiment", *arguments]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8


def test_convergence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    answer = experiment(capsys, "convergence", "--conversations", "1500", "--out", str(tmp_path))
    assert [result["capacity_blocks"] for result in answer["results"]] == [125, 250, 500, 1000, 2000, 4000, 8000]
    assert all(abs(result["error"]) < result["bound"] for result in answer["results"])
    assert answer["summary"]["survival_deviation_exponent"] == pytest.approx(-0.5, abs=0.2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["convergence.csv", "convergence.png"]


@pytest.mark.slow
def test_nonstationary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    answer = experiment(capsys, "nonstationary", "--conversations", "4200", "--out", str(tmp_path))
    assert len(answer["results"]) == 12
    assert answer["summary"]["mean_absolute_error"] < 0.01
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nonstationary.csv", "nonstationary.png"]


def test_figures_without_matplotlib_are_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["experiment", "paper-1", "--out", str(tmp_path)]) == 2
    assert "figures need matplotlib: install the extra 'lab'" in capsys.readouterr().err

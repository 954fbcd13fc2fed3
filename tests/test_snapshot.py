"""Snapshots on their way from the engine to the API servers."""

import json
import os
import stat
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.example_snapshots import snapshot
from vllm_hitratio_plugin.engine.registry import register_snapshots
from vllm_hitratio_plugin.metrics.snapshot_folder import read_all, write
from vllm_hitratio_plugin.settings import SNAPSHOT_DIR


@pytest.mark.parametrize("prompts", [0, 100, 2000])
def test_json_and_back(prompts: int) -> None:
    made = snapshot(prompts)
    assert from_json(made.to_json()) == made
    assert "\n" not in made.to_json()


def test_json_without_figures() -> None:
    made = snapshot(10, counters=None, estimate=None, degraded={"hook": "why"})
    assert from_json(made.to_json()) == made


def test_strict_json_without_nan() -> None:
    json.loads(snapshot().to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_what_a_later_version_adds_is_passed_over() -> None:
    made = snapshot()
    data = json.loads(made.to_json())
    for part in (data, data["counters"], data["estimate"]):
        part["newer"] = 3
    assert from_json(json.dumps(data)) == made


def test_engines_side_by_side(tmp_path: Path) -> None:
    folder = str(tmp_path / "new")
    zero, one = snapshot(100), snapshot(200, engine="1")
    write(folder, one)
    write(folder, zero)
    write(folder, zero)
    assert read_all(folder) == [zero, one]
    assert sorted(os.listdir(folder)) == ["engine-0.json", "engine-1.json"]


def test_only_the_user_may_look(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    write(str(folder), snapshot(10))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "engine-0.json").stat().st_mode) == 0o600


def test_what_can_not_be_read_is_left_out(tmp_path: Path) -> None:
    good = snapshot(10)
    write(str(tmp_path), good)
    (tmp_path / "engine-1.json").write_text("{")
    (tmp_path / "engine-2.json").write_text('{"counters": null, "estimate": null, "surprise": 1}')
    (tmp_path / "engine-3.json").mkdir()
    (tmp_path / "other.txt").write_text("hello")
    assert read_all(str(tmp_path)) == [good]
    assert read_all(str(tmp_path / "missing")) == []


def test_a_folder_that_can_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "engine-0.json").mkdir()
    with pytest.raises(OSError, match="engine-0"):
        write(str(tmp_path), snapshot(10))
    assert os.listdir(tmp_path) == ["engine-0.json"]


def test_registering_twice_shows_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SNAPSHOT_DIR, str(tmp_path))
    registry = CollectorRegistry()
    register_snapshots(registry)
    register_snapshots(registry)
    assert generate_latest(registry) == b""
    write(str(tmp_path), snapshot(300))
    text = generate_latest(registry).decode()
    assert text.count("\nhitratio_prompt_blocks_total{") == 1

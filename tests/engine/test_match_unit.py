"""Case 20: hits come in units smaller than a block, so ratios are of tokens."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.example_snapshots import page
from tests.support.real_server import environment
from tests.support.virtual_engine import VirtualEngine, chain, present, text
from vllm_hitratio_plugin.cli.doctor import headline
from vllm_hitratio_plugin.findings.rules import diagnose
from vllm_hitratio_plugin.metrics.reader import parse


@pytest.mark.slow
@pytest.mark.vllm
def test_case_20_with_vllms_own_scheduler(tiny_model: Path, shim: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.match_unit", str(tiny_model)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment({"HITRATIO_PORT": "0"}, [shim]),
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT "))
    assert found["tokens"] == [12_000, 15_120]
    assert found["blocks"] == [pytest.approx(12_000 / 8320), pytest.approx(15_120 / 8320)]
    assert (found["units"], found["short"]) == ([8320, 16, 4096], 0)
    assert found["degraded"] == ["not_modelled"]
    assert "block-too-large" not in found["idle"]
    first = found["findings"][0]
    assert first["rule"] == "not-modelled"
    assert any("79.4 % of 15,120 prompt tokens" in words for words in first["evidence"])
    assert all(finding["severity"] == "info" for finding in found["findings"])


def test_ratios_are_of_tokens() -> None:
    """Prompts of any length, some too short for a unit; the window's ratio and its error are of tokens, too."""
    engine = VirtualEngine(128, 1000, match_unit=16, least_reuses=0)
    hits = tokens = 0
    for number in range(300):
        length = 10 if number % 10 == 0 else 100 + number
        hit = 0 if number % 10 == 0 else (90 + number) // 16 * 16
        engine.tell(number, length, chain(text("shared", length), 128), hit)
        hits, tokens = hits + hit, tokens + length
    snapshot = engine.snapshot(modelled=False, degraded={"not_modelled": "two groups"}, match_unit=16)
    estimate = present(snapshot.estimate)
    assert estimate.observed == pytest.approx(hits / tokens, rel=1e-12)
    assert present(estimate.observed_stderr) > 0
    for seen in (snapshot, parse(page(snapshot), snapshot.wall_time).snapshots[0]):
        counters = present(seen.counters)
        assert counters.hit_blocks / counters.prompt_blocks == pytest.approx(hits / tokens, rel=1e-12)
        assert counters.prompt_blocks == pytest.approx(tokens / 128)
        assert counters.short_prompts == 30
        assert (seen.match_unit, seen.block_size) == (16, 128)
        assert "of 128 tokens; hits in units of 16 tokens" in headline(seen)
        # What the model would say of such a cache is no figure.
        assert "predicted" not in headline(seen)
        assert "at most" not in headline(seen)


@pytest.mark.parametrize(("match_unit", "fires"), [(None, True), (16, False), (4096, True)])
def test_nothing_can_hit_where_a_unit_is_longer_than_any_prompt(match_unit: int | None, fires: bool) -> None:
    snapshot = VirtualEngine(8320, 100).snapshot(max_model_len=4096, match_unit=match_unit)
    assert ("block-too-large" in [finding.rule for finding in diagnose(snapshot)]) == fires

"""``hitratio replay``: the public reference values, generated traffic, both pools."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_hitratio_plugin.cli import main
from vllm_hitratio_plugin.replay.pools import vllm_pool


def replay(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["replay", *arguments, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.fixture
def small_trace(tmp_path: Path) -> str:
    """Four conversations of ten turns that grow by a block of 16 tokens, a turn every ten seconds each."""
    path = tmp_path / "small.jsonl"
    records = [
        {
            "timestamp": 10_000 * turn + 2500 * conversation,
            "input_length": 16 * (turn + 1) + 5,
            "hash_ids": [1000 * conversation + block for block in range(turn + 2)],
            "session_id": f"s{conversation}",
        }
        for turn in range(10)
        for conversation in range(4)
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def test_mooncake(shared_traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {1000: 0.045, 2000: 0.054, 5000: 0.112, 10_000: 0.212, 20_000: 0.288, 50_000: 0.355}
    path = str(shared_traces / "mooncake" / "conversation_trace.jsonl.gz")
    answer = replay(capsys, path, "--capacities", ",".join(map(str, expected)))
    assert [result["capacity_blocks"] for result in answer["results"]] == list(expected)
    for result in answer["results"]:
        assert result["observed"] == pytest.approx(expected[result["capacity_blocks"]], abs=0.001)
        assert result["predicted"]["reuse_time"] == pytest.approx(result["observed"], abs=0.005)
        assert result["error"] == pytest.approx(result["predicted"]["reuse_time"] - result["observed"])
        assert set(result["predicted"]) == {"mean_field", "reuse_time"}
        assert result["characteristic_time_s"] > 0
    workload = answer["workload"]
    assert workload["prompts"] == 12_031
    assert workload["prompt_blocks"] == 288_500
    assert workload["reuse_ceiling"] == pytest.approx(0.366, abs=0.0005)
    assert answer["trace"]["block_size"] == 512


def test_agents_are_reported(shared_traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(shared_traces / "lmcache-agent-trace" / "agent_requests_blk64.jsonl.gz")
    assert main(["replay", path, "--capacities", "100,2000"]) == 0
    output = capsys.readouterr().out
    assert "recorded prompts without a token" in output
    assert "prompts larger than the smallest capacity" in output


def test_a_small_trace_to_the_last_block(small_trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = replay(capsys, small_trace, "--capacities", "1000")
    (result,) = answer["results"]
    assert result["prompt_blocks"] == 4 * sum(range(2, 12))
    assert result["observed"] == 4 * sum(range(1, 10)) / result["prompt_blocks"]
    assert result["predicted"]["reuse_time"] == pytest.approx(result["observed"])
    assert answer["workload"]["conversations"] == 4
    assert answer["window_s"] is None


def test_larger_blocks(small_trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = replay(capsys, small_trace, "--capacities", "1000", "--block-size", "32")
    assert answer["trace"]["block_size"] == 32
    assert answer["results"][0]["prompt_blocks"] == 4 * sum(-(-(16 * size + 5) // 32) for size in range(1, 11))


def test_standard_input(small_trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    content = Path(small_trace).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedRandom(io.BytesIO(content))))  # type: ignore[arg-type, type-var, unused-ignore]
    answer = replay(capsys, "-", "--capacities", "1000")
    assert answer["trace"]["name"] == "standard input"
    assert answer["results"] == replay(capsys, small_trace, "--capacities", "1000")["results"]


def test_turn_lengths_get_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text("[[100, 200], [50, 300], [80, 10]]\n" * 50)
    arguments = [
        str(path),
        "--capacities",
        "50",
        "--block-size",
        "16",
        "--conversations",
        "600",
        "--interarrival",
        "20",
    ]
    answer = replay(capsys, *arguments, "--service-time", "fixed:1")
    (result,) = answer["results"]
    assert answer["trace"]["real_times"] is False
    assert answer["service_time"] == "fixed:1"
    assert 0 < result["mean_pinned_blocks"] < 50
    assert result["prompts"] < answer["workload"]["prompts"]  # the warm-up is not measured
    assert answer == replay(capsys, *arguments, "--service-time", "fixed:1")
    assert answer["results"] != replay(capsys, *arguments, "--service-time", "fixed:1", "--seed", "1")["results"]
    assert replay(capsys, *arguments, "--service-time", "0")["service_time"] is None


def test_text(small_trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", small_trace, "--capacities", "20,1000"]) == 0
    output = capsys.readouterr().out
    assert "reuse ceiling" in output
    assert "1,000" in output
    assert "-0" not in output.replace("-0.", "")


def test_text_says_who_was_left_out(small_trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [small_trace, "--capacities", "5,1000", "--service-time", "fixed:1000"]
    small, _ = replay(capsys, *arguments)["results"]
    assert small["rejected_prompts"]
    assert small["waiting_prompts"]
    assert main(["replay", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("still waiting") for line in lines)
    assert lines[-3].split()[-2:] == ["rejected", "waiting"]
    assert lines[-2].split()[-2:] == [str(small["rejected_prompts"]), str(small["waiting_prompts"])]
    assert lines[-1].split()[-2:] == ["0", "0"]


@pytest.mark.vllm
@pytest.mark.parametrize("unhashed", ["tail", "head"])
def test_both_pools_say_the_same(small_trace: str, capsys: pytest.CaptureFixture[str], unhashed: str) -> None:
    arguments = [small_trace, "--capacities", "20,40", "--unhashed", unhashed, "--service-time", "2"]
    builtin, vllm = replay(capsys, *arguments), replay(capsys, *arguments, "--pool", "vllm")
    assert builtin["results"] == vllm["results"]
    assert vllm["pool"] == "vllm"


def test_without_vllm_one_sentence(
    small_trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm_pool._vllm.cache_clear()
    monkeypatch.setitem(sys.modules, "vllm.v1.core.kv_cache_manager", None)
    try:
        assert main(["replay", small_trace, "--capacities", "20", "--pool", "vllm"]) == 2
    finally:
        vllm_pool._vllm.cache_clear()
    error = capsys.readouterr().err.splitlines()[-1]
    assert "the vLLM pool needs a working vLLM" in error
    assert "the builtin pool needs none" in error

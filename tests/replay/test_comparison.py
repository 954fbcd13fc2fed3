"""The estimator against the pools: the accuracy that is promised, on real traces."""

from pathlib import Path

import pytest

from vllm_hitratio_plugin.replay.arrivals import poisson
from vllm_hitratio_plugin.replay.comparison import compare
from vllm_hitratio_plugin.replay.formats.source import read_source
from vllm_hitratio_plugin.replay.generator import Generated, Traffic, draw_conversations, generate
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.pools.pool import Unhashed
from vllm_hitratio_plugin.replay.trace import Prompt, Trace


def mooncake(shared_traces: Path) -> Trace:
    trace = read_source(str(shared_traces / "mooncake" / "conversation_trace.jsonl.gz"))
    assert isinstance(trace, Trace)
    return trace


def sharegpt(shared_traces: Path, arrival_rate: float, mean_gap: float) -> Generated:
    conversations = read_source(str(shared_traces / "sharegpt-lengths" / "turn_lengths_cl100k_split.jsonl.gz"))
    assert isinstance(conversations, list)
    traffic = Traffic(poisson(arrival_rate), exponential(mean_gap))
    return generate(draw_conversations(conversations, 6000, 0), traffic, block_size=128, warmup=1000)


@pytest.mark.parametrize(
    ("capacity", "unhashed"),
    [
        (1000, "tail"),
        (2000, "tail"),
        (5000, "tail"),
        (5000, "head"),
        (10_000, "tail"),
        (20_000, "tail"),
        (50_000, "tail"),
    ],
)
def test_mooncake_is_predicted_within_half_a_point(shared_traces: Path, capacity: int, unhashed: Unhashed) -> None:
    comparison = compare(mooncake(shared_traces), capacity, unhashed=unhashed)
    assert comparison.error == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(
    ("arrival_rate", "mean_gap", "tail", "head"),
    [(1.5, 90, 0.2750, 0.3229), (1.5, 240, 0.1289, 0.1562), (0.5, 135, 0.4264, 0.4708), (2.0, 135, 0.1585, 0.1895)],
)
def test_the_papers_setting(
    shared_traces: Path, arrival_rate: float, mean_gap: float, tail: float, head: float
) -> None:
    """Observed as listed, up to the noise of seeds; predicted within 0.003 and 2 %."""
    generated = sharegpt(shared_traces, arrival_rate, mean_gap)
    policies: tuple[tuple[Unhashed, float], ...] = (("tail", tail), ("head", head))
    for unhashed, expected in policies:
        comparison = compare(generated.trace, 2275, unhashed=unhashed, window=generated.window)
        observed = comparison.observed.hit_ratio
        assert observed == pytest.approx(expected, abs=0.01)
        assert comparison.error == pytest.approx(0, abs=0.003)
        assert comparison.error == pytest.approx(0, abs=0.02 * expected)


@pytest.mark.parametrize(("seconds", "tolerance"), [(2, 0.003), (10, 0.003), (30, 0.006)])
def test_blocks_in_use_are_taken_into_account(shared_traces: Path, seconds: float, tolerance: float) -> None:
    generated = sharegpt(shared_traces, 1.0, 135)
    comparison = compare(generated.trace, 2275, unhashed="head", window=generated.window, service=exponential(seconds))
    assert comparison.observed.mean_in_use_blocks == pytest.approx(25 * seconds, rel=0.1)
    assert comparison.error == pytest.approx(0, abs=tolerance)


def test_one_prompt_is_no_division_by_zero() -> None:
    comparison = compare(Trace("one", 16, [Prompt(0.0, 20, [1, 2])]), 10)
    assert comparison.observed.hit_ratio == 0
    assert comparison.predicted["reuse_time"] == 0
    assert comparison.predicted["mean_field"] is None


def test_nothing_fits() -> None:
    comparison = compare(Trace("large", 16, [Prompt(0.0, 2000, range(125))]), 10)
    assert comparison.observed.rejected == 1
    assert comparison.observed.hit_ratio is None
    assert comparison.error is None

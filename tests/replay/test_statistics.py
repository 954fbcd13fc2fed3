"""What a trace holds."""

from vllm_hitratio_plugin.replay.statistics import trace_statistics
from vllm_hitratio_plugin.replay.trace import Prompt, Trace


def test_statistics_of_a_small_trace() -> None:
    trace = Trace(
        "t",
        10,
        [
            Prompt(1.0, 25, ["a", "b", "x"], "one"),
            Prompt(2.0, 30, ["a", "b", "c"], "one"),
            Prompt(4.0, 30, ["a", "b", "c"], "two"),  # the last block is computed again
            Prompt(5.0, 5, ["y"]),
        ],
    )
    statistics = trace_statistics(trace)
    assert statistics.prompts == 4
    assert statistics.prompt_tokens == 90
    assert statistics.prompt_blocks == 10
    assert statistics.distinct_blocks == 3
    assert statistics.reusable_blocks == 4
    assert statistics.reuse_ceiling == 0.4
    assert statistics.conversations == 2
    assert statistics.duration_s == 4


def test_an_empty_trace() -> None:
    statistics = trace_statistics(Trace("t", 10, []))
    assert statistics.reuse_ceiling is None
    assert statistics.conversations is None
    assert statistics.duration_s == 0

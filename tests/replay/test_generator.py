"""Generated traffic: exact structure, the moments of its laws, reproducibility."""

from pathlib import Path

import numpy as np
import pytest

from vllm_hitratio_plugin.replay.arrivals import Arrivals, burst, diurnal, parse_arrivals, poisson, ramp
from vllm_hitratio_plugin.replay.formats.source import read_source
from vllm_hitratio_plugin.replay.generator import Traffic, draw_conversations, generate
from vllm_hitratio_plugin.replay.law import Law, exponential, parse_law
from vllm_hitratio_plugin.replay.sharegpt_like import MAX_TURNS, MIN_TURNS, sharegpt_like, turn_distribution
from vllm_hitratio_plugin.replay.turns import Turn, conversation_sample, prompt_lengths


def fixed(seconds: float) -> Law:
    return parse_law(f"fixed:{seconds:g}")


CHAT = [Turn(100, 60), Turn(10, 90), Turn(40, 5)]


def test_prompts_grow_by_everything_said_before() -> None:
    assert prompt_lengths(CHAT) == [100, 170, 300]
    assert prompt_lengths([Turn(0, 0), Turn(0, 3), Turn(2, 0)]) == [1, 1, 5]  # no engine takes an empty prompt


def test_a_generated_trace_to_the_last_block() -> None:
    generated = generate([CHAT, [Turn(64, 1)]], Traffic(poisson(0.001), fixed(10)), block_size=64, warmup=0)
    first, second, third, other = sorted(generated.trace.prompts, key=lambda p: (p.conversation or "", p.time))
    assert [p.tokens for p in (first, second, third, other)] == [100, 170, 300, 64]
    assert [p.output_tokens for p in (first, second, third, other)] == [60, 90, 5, 1]
    assert [len(p.blocks) for p in (first, second, third, other)] == [2, 3, 5, 1]
    assert list(third.blocks)[:2] == list(first.blocks)
    assert not set(third.blocks) & set(other.blocks)
    assert second.time - first.time == pytest.approx(10)
    assert generated.trace.real_times is False


def test_the_window_and_the_censored_interarrivals() -> None:
    """Only interarrival times that end before the last start are known to an experiment that ends there."""
    conversations = [CHAT] * 100
    generated = generate(conversations, Traffic(poisson(1.0), fixed(30)), block_size=64, seed=4, warmup=10)
    starts = sorted(p.time for p in generated.trace.prompts if p.tokens == 100)
    assert generated.window == (starts[10], starts[-1])
    expected = sum(start + 30 * turn <= starts[-1] for start in starts[10:] for turn in (1, 2))
    assert len(generated.interarrivals) == expected
    assert set(generated.interarrivals) == {30.0}
    assert len(generated.conversations) == 90


def test_a_turn_waits_for_the_answer_before_it() -> None:
    """Equation (80): W = max(W^E2E, W^sample)."""
    generated = generate([CHAT] * 50, Traffic(poisson(1.0), exponential(10), fixed(12)), block_size=64, seed=1)
    assert min(generated.interarrivals) == 12
    assert max(generated.interarrivals) > 12
    plain = generate([CHAT] * 50, Traffic(poisson(1.0), exponential(10)), block_size=64, seed=1)
    assert min(plain.interarrivals) < 1


def test_the_seed_says_it_all_and_laws_have_streams_of_their_own() -> None:
    slow, fast = Traffic(poisson(1), exponential(10)), Traffic(poisson(1), exponential(5))
    one, again, other = (generate([CHAT] * 30, slow, block_size=64, seed=seed) for seed in (1, 1, 2))
    assert one.trace.prompts == again.trace.prompts
    assert one.trace.prompts != other.trace.prompts
    quick = generate([CHAT] * 30, fast, block_size=64, seed=1)
    assert [p.time for p in quick.trace.prompts if p.tokens == 100] == [
        p.time for p in one.trace.prompts if p.tokens == 100
    ]


@pytest.mark.parametrize("warmup", [-1, 1, 2])
def test_something_must_be_left_to_measure(warmup: int) -> None:
    with pytest.raises(ValueError, match="leave none to measure"):
        generate([CHAT], Traffic(poisson(1), fixed(1)), block_size=64, warmup=warmup)


def test_choosing_conversations() -> None:
    conversations = [[Turn(number, 1)] * (1 + number % 3) for number in range(300)]
    chosen = draw_conversations(conversations, 150, seed=3)
    assert all(len(turns) >= 2 for turns in chosen)
    assert len({turns[0].prompt_tokens for turns in chosen}) == 150  # each at most once
    assert chosen == draw_conversations(conversations, 150, seed=3) != draw_conversations(conversations, 150, seed=4)
    assert len(draw_conversations(conversations, 500)) == 500  # more than there are: some come again
    with pytest.raises(ValueError, match="no conversation has 2 turns or more"):
        draw_conversations([[Turn(1, 1)]], 1)
    assert draw_conversations(None, 20, seed=1) == draw_conversations(None, 20, seed=1)


def test_the_turn_law_has_the_papers_moments() -> None:
    turns, probabilities = np.arange(MIN_TURNS, MAX_TURNS + 1), turn_distribution()
    mean = turns @ probabilities
    assert probabilities.sum() == pytest.approx(1)
    assert (MIN_TURNS, MAX_TURNS) == (2, 37)
    assert mean == pytest.approx(4.4694, abs=1e-4)
    assert (turns - mean) ** 2 @ probabilities == pytest.approx(7.9659, abs=1e-3)


def test_sharegpt_like_conversations_weigh_what_the_papers_do() -> None:
    conversations = sharegpt_like(np.random.default_rng(0), 50_000)
    means = conversation_sample(conversations, 128)
    assert means.turns == pytest.approx(4.4694, rel=0.01)
    assert means.lifetime_blocks == pytest.approx(12.922, rel=0.01)
    assert means.history_workload == pytest.approx(38.9092, rel=0.015)
    assert means.workload(1.0).reusable_workload == pytest.approx(22.5178, rel=0.02)
    assert max(map(len, conversations)) <= 37


def test_means_of_conversations() -> None:
    """Blocks of 64: R = 2, 3, 5 and 1."""
    means = conversation_sample([CHAT, [Turn(64, 1)]], 64)
    assert means.history_workload == (2 + 3 + 5 + 1) / 2
    assert means.workload(1.0).reusable_workload == (1 + 2) / 2
    assert means.lifetime_blocks == (5 + 1) / 2
    assert means.turns == 2


def test_means_of_the_public_lengths(shared_traces: Path) -> None:
    conversations = read_source(str(shared_traces / "sharegpt-lengths" / "turn_lengths_cl100k_split.jsonl.gz"))
    assert isinstance(conversations, list)
    assert len(conversations) == 17_397
    longer = [turns for turns in conversations if len(turns) >= 2]
    assert len(longer) == 12_970
    assert conversation_sample(longer, 128).history_workload == pytest.approx(25.3453, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("135", 135, 135),
        ("exponential:135", 135, 135),
        ("fixed:10", 10, 0),
        ("lognormal:135:0.5", 135, 71.9),
        ("gamma:135:4", 135, 67.5),
        ("weibull:135:1", 135, 135),
    ],
)
def test_laws_of_durations(text: str, mean: float, deviation: float) -> None:
    law = parse_law(text)
    values = np.array(law.draw(np.random.default_rng(0), 100_000))
    assert law.mean == pytest.approx(mean)
    assert values.mean() == pytest.approx(mean, rel=0.02)
    assert values.std() == pytest.approx(deviation, rel=0.05)
    assert parse_law(law.name).name == law.name


def test_a_law_without_a_name_is_exponential() -> None:
    assert exponential(135) == parse_law("135")


@pytest.mark.parametrize(
    "text", ["", "x", "exponential", "exponential:-1", "fixed:nan", "fixed:-1", "lognormal:1", "gamma:0:1", "square:1"]
)
def test_bad_laws(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'.*(takes|must be one of)"):
        parse_law(text)


@pytest.mark.parametrize(
    ("arrivals", "start", "end", "expected"),
    [
        (poisson(2.0), 0, 5000, 2.0),
        (ramp(1.4, 0.2, 1000, 10_000), 0, 1000, 1.4),
        (ramp(1.4, 0.2, 1000, 10_000), 1000, 2000, 1.34),
        (ramp(1.4, 0.2, 1000, 10_000), 12_000, 16_000, 0.2),
        (diurnal(1.5, 4, 4000), 0, 20_000, 1.5),
        (diurnal(1.5, 4, 40_000), 9500, 10_500, 2.4),
        (diurnal(1.5, 4, 40_000), 29_500, 30_500, 0.6),
        (burst(1, 4, 1200, 120), 0, 1080, 1.0),
        (burst(1, 4, 12_000, 1200), 10_800, 12_000, 4.0),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_rates_of_arrivals(arrivals: Arrivals, start: float, end: float, expected: float) -> None:
    times = arrivals.draw(np.random.default_rng(0), 60_000)
    assert np.all(np.diff(times) > 0)
    assert times[-1] >= end
    count = ((times >= start) & (times < end)).sum()
    assert count == pytest.approx(expected * (end - start), abs=4 * (expected * (end - start)) ** 0.5)
    assert parse_arrivals(arrivals.name).name == arrivals.name


@pytest.mark.parametrize(
    "text", ["", "x", "poisson:0", "poisson:-1", "ramp:1:2:3", "burst:1:2:3", "diurnal:1:inf:3", "square:1"]
)
def test_bad_arrivals(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'.*'.*(takes|must be one of)"):
        parse_arrivals(text)

"""The demo's load: reproducible, growing prompts, stationary from its first second."""

from collections import defaultdict

import numpy as np
import pytest

from examples.demo.settings import MAX_PROMPT_TOKENS
from examples.demo.workload import Timetable, draw_timetable, identifier
from vllm_hitratio_plugin.replay.turns import prompt_lengths


@pytest.fixture(scope="module")
def timetable() -> Timetable:
    return draw_timetable(seed=7, seconds=400.0, conversations_per_second=4.0, think_seconds=5.0)


def test_same_seed_same_load(timetable: Timetable) -> None:
    again = draw_timetable(seed=7, seconds=400.0, conversations_per_second=4.0, think_seconds=5.0)
    assert again.trace.prompts == timetable.trace.prompts
    assert again.tokens("3") == timetable.tokens("3")


def test_another_seed_another_load(timetable: Timetable) -> None:
    other = draw_timetable(seed=8, seconds=400.0, conversations_per_second=4.0, think_seconds=5.0)
    assert other.trace.prompts != timetable.trace.prompts
    assert other.tokens("3")[:20] != timetable.tokens("3")[:20]


def test_prompts_are_in_order_and_within_the_load(timetable: Timetable) -> None:
    times = [prompt.time for prompt in timetable.trace.prompts]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < timetable.seconds


def test_every_prompt_extends_the_one_before(timetable: Timetable) -> None:
    lengths: dict[str, list[int]] = defaultdict(list)
    for prompt in timetable.trace.prompts:
        lengths[str(prompt.conversation)].append(prompt.tokens)
    for number, seen in lengths.items():
        whole = prompt_lengths(timetable.conversations[int(number)])
        # Its first turns may have come before the load, its last ones after it.
        assert any(seen == whole[begin : begin + len(seen)] for begin in range(len(whole)))
        assert len(timetable.tokens(number)) == whole[-1] <= MAX_PROMPT_TOKENS


def test_prompts_have_about_600_tokens(timetable: Timetable) -> None:
    assert np.mean([prompt.tokens for prompt in timetable.trace.prompts]) == pytest.approx(600, rel=0.1)


def test_the_load_is_stationary_from_the_start(timetable: Timetable) -> None:
    # 4 conversations/s of 4.47 turns: 17.9 requests/s, in the first 30 s as in all of it. Conversations come in clumps
    # of turns, so counts vary more than a Poisson variable: E[M²]/E[M] = 6.3 times its variance at most.
    expected = 4.0 * 4.47 * 30
    first = sum(prompt.time < 30 for prompt in timetable.trace.prompts)
    assert abs(first - expected) < 3 * np.sqrt(6.3 * expected)
    overall = len(timetable.trace.prompts) / timetable.seconds
    assert overall == pytest.approx(4.0 * 4.47, rel=0.1)


def test_conversations_of_a_window(timetable: Timetable) -> None:
    started = timetable.started(100, 300)
    assert len(started) == pytest.approx(800, abs=4 * np.sqrt(800))
    assert all(turns for turns in started)


def test_every_other_conversation_names_itself() -> None:
    assert identifier("4") == "conversation-4"
    assert identifier("5") is None

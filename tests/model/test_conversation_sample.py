import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_hitratio_plugin.model.conversation_sample import ConversationSample
from vllm_hitratio_plugin.model.workload import Workload

conversations = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=6).map(lambda z: np.cumsum(z).tolist()), min_size=1, max_size=12
)


def test_the_papers_worked_example() -> None:
    sample = ConversationSample([[2, 8, 16]])
    assert sample.history_workload == 26
    assert sample.reusable_workload == 10
    assert sample.workload(1.0, hashable=False).reuse_potential == 10 / 26
    assert sample.workload(1.0).reusable_workload == 8
    assert (sample.lifetime_blocks, sample.turns) == (16, 3)


def test_sample_means_by_hand() -> None:
    sample = ConversationSample([[2, 8, 16], [3], [1, 4]])  # (35)-(37)
    assert sample.workload(1.5) == Workload(1.5, 34 / 3, (1 + 7 + 0) / 3, 23 / 3, 2.0)
    assert sample.workload(1.5, hashable=False).reusable_workload == 11 / 3
    assert sample.survival.tolist() == [1, 2 / 3, 1 / 3]
    assert sample.reusable_by_turn() == pytest.approx([1, 8 / 3, 0])
    assert sample.reusable_by_turn(hashable=True) == pytest.approx([1 / 3, 7 / 3, 0])
    # S_{j+1} √E[R_j²] over the conversations that go on
    assert sample.root_second_moment_by_turn() == pytest.approx([2 / 3 * np.sqrt((4 + 1) / 2), 8 / 3, 0])


def test_dependent_sizes_only_enter_through_their_means() -> None:
    """Z_2 repeats Z_1, M is independent of both; independent draws of the same means give the same workload."""
    dependent = ConversationSample([[1], [3], [1, 2], [3, 6]])
    independent = ConversationSample([[1], [3], [1, 4], [3, 4]])
    assert dependent.workload(1.0) == independent.workload(1.0)


@given(conversations)
def test_a_prompt_is_history_and_new_blocks(histories: list[list[int]]) -> None:
    sample = ConversationSample(histories)
    assert sample.history_workload == pytest.approx(sample.reusable_workload + sample.lifetime_blocks)
    assert sample.reusable_by_turn().sum() == pytest.approx(sample.reusable_workload)
    assert 0 <= sample.workload(1.0).reusable_workload <= sample.reusable_workload
    assert sample.survival[0] == 1
    assert (np.diff(sample.survival) <= 0).all()


@given(conversations)
def test_order_of_conversations_does_not_matter(histories: list[list[int]]) -> None:
    first, second = ConversationSample(histories).workload(1.0), ConversationSample(histories[::-1]).workload(1.0)
    assert first == second


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConversationSample([]), "at least one conversation"),
        (lambda: ConversationSample([[1], []]), "conversation 2 has no turns"),
        (lambda: ConversationSample([[1, 2], [4, 3]]), "got 3 at turn 2 of conversation 2"),
        (lambda: ConversationSample([[0, 2]]), "got 0 at turn 1 of conversation 1"),
    ],
)
def test_bad_input_is_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]

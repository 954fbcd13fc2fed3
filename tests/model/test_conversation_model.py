import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_hitratio_plugin.model.conversation import (
    ConversationSample,
    MultiTurnModel,
    StochasticModel,
    history_sizes,
)
from vllm_hitratio_plugin.model.workload import Workload

conversations = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=6).map(lambda z: np.cumsum(z).tolist()), min_size=1, max_size=12
)


def test_the_papers_worked_example() -> None:
    assert history_sizes([2, 4, 3], [2, 5]) == history_sizes([2, 4, 3], [2, 5, 7]) == [2, 8, 16]
    sample = ConversationSample([[2, 8, 16]])
    assert sample.history_workload == 26
    assert sample.reusable_workload == 10
    assert sample.reuse_potential == 10 / 26
    assert sample.hashable_workload == 8
    assert (sample.lifetime_blocks, sample.turns) == (16, 3)


def test_sample_means_by_hand() -> None:
    sample = ConversationSample([[2, 8, 16], [3], [1, 4]])  # (35)-(37)
    assert sample.workload(1.5) == Workload(1.5, 34 / 3, (1 + 7 + 0) / 3, 23 / 3, 2.0)
    assert sample.workload(1.5, hashable=False).reusable_workload == 11 / 3
    assert sample.survival.tolist() == [1, 2 / 3, 1 / 3]
    assert sample.continuation == pytest.approx([2 / 3, 1 / 2, 0])
    assert sample.mean_history.tolist() == [2, 6, 16]
    assert sample.reusable_by_turn() == pytest.approx([1, 8 / 3, 0])
    assert sample.reusable_by_turn(hashable=True) == pytest.approx([1 / 3, 7 / 3, 0])
    # S_{j+1} √E[R_j²] over the conversations that go on
    assert sample.root_second_moment_by_turn() == pytest.approx([2 / 3 * np.sqrt((4 + 1) / 2), 8 / 3, 0])


def test_general_model_by_hand() -> None:
    model = MultiTurnModel([0.5, 0.0, 0.5], [2, 6, 8])
    assert model.survival.tolist() == [1, 0.5, 0.5]
    assert model.continuation.tolist() == [0.5, 1, 0]
    assert model.mean_history.tolist() == [2, 8, 16]
    assert model.history_workload == 2 + 4 + 8
    assert model.reusable_workload == 1 + 4
    assert model.lifetime_blocks == 0.5 * 2 + 0.5 * 16
    assert model.turns == 2
    assert model.hashable_workload == 4


@pytest.mark.parametrize(("p", "k", "m"), [(0.0, 2.0, 3.0), (0.7, 1.5, 2.5), (0.9, 4.0, 0.0)])
def test_scm_closed_forms(p: float, k: float, m: float) -> None:
    scm, series = StochasticModel(p, k, m), StochasticModel(p, k, m).truncated(2000)
    assert scm.history_workload == pytest.approx((k + p * m) / (1 - p) ** 2)
    assert scm.reuse_potential == pytest.approx(p)
    for quantity in ("history_workload", "reusable_workload", "hashable_workload", "lifetime_blocks", "turns"):
        assert getattr(scm, quantity) == pytest.approx(getattr(series, quantity), rel=1e-10, abs=1e-12)
    assert series.mean_history[:3].tolist() == pytest.approx([k, 2 * k + m, 3 * k + 2 * m])


def test_dependent_increments_only_enter_through_their_means() -> None:
    # Z_2 repeats Z_1, M is independent of them: half of 1, 1 and half of 3, 3.
    sample = ConversationSample([[1], [3], [1, 2], [3, 6]])
    model = MultiTurnModel([0.5, 0.5], [2, 2])
    assert sample.workload(1.0) == model.workload(1.0)


@given(conversations)
def test_a_prompt_is_history_and_new_blocks(histories: list[list[int]]) -> None:
    sample = ConversationSample(histories)
    assert sample.history_workload == pytest.approx(sample.reusable_workload + sample.lifetime_blocks)
    assert sample.survival @ sample.mean_history == pytest.approx(sample.history_workload)
    assert sample.reusable_by_turn().sum() == pytest.approx(sample.reusable_workload)
    assert sample.hashable_workload > -1e-9
    assert sample.reuse_potential < 1
    assert (sample.continuation <= 1).all()


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
        (lambda: MultiTurnModel([0.5, 0.4], [1, 1]), "sum of 0.9"),
        (lambda: MultiTurnModel([1.0], [1, 1]), "one length"),
        (lambda: MultiTurnModel([1.0], [0.5]), "at least 1 block a turn, got 0.5"),
        (lambda: StochasticModel(1.0, 1, 1), "below 1, got 1.0"),
        (lambda: StochasticModel(0.5, 0, 1), "prompt_blocks must be finite and at least 1, got 0"),
        (lambda: history_sizes([1, 2, 3], [1]), "must be 2 or 3"),
    ],
)
def test_bad_input_is_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]

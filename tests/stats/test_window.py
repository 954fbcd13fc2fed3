"""The sliding window: slots that add up, idle time that counts, stretching, alignment."""

import numpy as np
import pytest

from vllm_hitratio_plugin.estimator import Estimator
from vllm_hitratio_plugin.model.traffic import RunTable
from vllm_hitratio_plugin.stats.window import Span, Window


class Fitted:
    """A window whose parts are fitted when they end, as the monitor does it."""

    def __init__(self, *capacities: int) -> None:
        self.window = Window(60, 6, capacities)
        self.estimator = Estimator(capacities, target=None, least_requests=1, least_reuses=1)

    def cut(self, time: float) -> bool:
        if not self.window.divisible(time):
            return False
        self.fit(time)
        self.window.cut(time)
        return True

    def fit(self, time: float) -> None:
        self.window.measure(time)
        self.estimator.fit(self.window.open, self.window.history)


def traffic(window: Window, time: float, requests: int = 1, reuses: int = 0) -> None:
    window.advance(time)
    slot = window.open.sums
    slot.requests += requests
    slot.prompt_blocks += 10 * requests
    slot.written_blocks += 10 * requests - reuses
    if reuses:
        slot.add(RunTable.of(np.full(reuses, 2.0), np.ones(reuses)))


def test_slots_are_aligned_with_the_origin() -> None:
    window = Window(60, 6, (5,), origin=3)
    traffic(window, 47)
    assert window.closes == 53
    window.advance(53)
    (first,) = window.span(least_seconds=100).slots
    assert first.sums.seconds == 6
    traffic(window, 62.5)
    window.measure(62.5)
    assert [slot.sums.seconds for slot in window.span(least_seconds=100).slots] == [6, 9.5]
    assert window.closes == 63


def test_a_boundary_belongs_to_the_slot_that_it_opens() -> None:
    window = Window(60, 6, (5,))
    window.advance(0)
    assert window.closes == 10
    traffic(window, 10)
    window.measure(10)
    assert [slot.sums.requests for slot in window.span(least_seconds=100).slots] == [0, 1]


def test_idle_slots_count_with_their_seconds() -> None:
    window = Window(60, 6, (5,))
    traffic(window, 1)
    assert window.advance(45)
    window.measure(45)
    slots = window.span().slots
    assert [slot.sums.seconds for slot in slots] == [9, 10, 10, 10, 5]
    assert [slot.sums.requests for slot in slots] == [1, 0, 0, 0, 0]


def test_the_window_is_as_long_as_asked_for() -> None:
    window = Window(60, 6, (5,))
    for second in range(200):
        traffic(window, second, reuses=1)
    window.measure(199)
    slots = window.span().slots
    assert sum(slot.sums.seconds for slot in slots) == pytest.approx(60, abs=10)
    assert slots[-1] is window.open


def test_the_window_stretches_over_thin_traffic_and_no_further_than_it_may() -> None:
    window = Window(60, 6, (5,), stretch=3)
    for second in range(0, 1000, 5):
        traffic(window, second, reuses=int(second % 10 == 0))
    window.measure(995)
    assert sum(slot.sums.reuse_runs for slot in window.span(least_runs=12).slots) == pytest.approx(12, abs=1)
    whole = window.span(least_runs=1e9).slots
    assert sum(slot.sums.seconds for slot in whole) <= 3 * 60 + 10
    assert len(whole) == 3 * 6 + 1
    assert sum(slot.sums.seconds for slot in window.span(least_seconds=100).slots) == pytest.approx(105, abs=10)


def test_idle_for_longer_than_anything_is_remembered() -> None:
    window = Window(60, 6, (5,))
    traffic(window, 1)
    assert window.advance(1e7)
    window.measure(1e7)
    assert sum(slot.sums.requests for slot in window.span(least_seconds=1e9).slots) == 0
    assert 1e7 < window.closes <= 1e7 + 10


def test_parts_of_a_slot_are_one_slot_of_the_window() -> None:
    """Cut or not, slots are equal; a part keeps its expected hits, and short reuse times see the parts before them."""
    fitted = Fitted(0, 100)
    window = fitted.window
    for second in (0, 1, 2, 3, 12, 13):
        if second == 12:
            fitted.fit(window.closes)
        traffic(window, second, reuses=2)
        if second in (1, 12):
            assert window.open.sums.requests == (2 if second == 1 else 1)
            assert fitted.cut(second + 0.5)
    assert fitted.cut(13.2)
    assert not fitted.cut(13.4)  # no traffic since
    fitted.fit(14)
    span = window.span()
    assert [slot.sums.seconds for slot in span.slots] == [10, 4]
    assert [slot.sums.requests for slot in span.slots] == [4, 2]
    assert [slot.expected[1] for slot in span.slots] == [8, 4]
    assert [slot.curve.prompt_blocks for slot in span.slots] == [40, 20]
    assert (span.sums.seconds, span.sums.requests, span.sums.reusable_blocks) == (14, 6, 12)
    assert span.before == []


def test_a_burst_is_not_diluted_by_the_idle_rest_of_its_slot() -> None:
    """50 blocks within a second, then a run reused after that second: 50 ahead of it, not a tenth of that."""
    expected = []
    for cuts in (False, True):
        fitted = Fitted(30)
        window = fitted.window
        window.advance(0)
        for time, requests in ((8, 1), (8.5, 5)):
            traffic(window, time, requests)
            if cuts:
                fitted.cut(time + 0.4)
        window.advance(9)
        slot = window.open.sums
        slot.requests += 1
        slot.prompt_blocks += 10
        slot.add(RunTable.of(np.array([1.0]), np.array([10.0])))
        fitted.fit(9.5)
        expected.append(window.span().slots[-1].expected[0])
    assert expected == [10, 0]


def test_the_same_number_of_slots_before_the_window() -> None:
    window = Window(60, 6, (5,))
    for second in range(200):
        traffic(window, second, reuses=1)
    window.measure(199)
    span: Span = window.span()
    assert len(span.before) == len(span.slots) > 5
    assert not set(map(id, span.before)) & set(map(id, span.slots))


def test_a_closed_slot_keeps_its_expected_hits() -> None:
    """4 runs of one block, reused after 2 s, while 1 block/s is written: at most 2 ahead; N = 1 has none of them."""
    fitted = Fitted(1, 100)
    window = fitted.window
    for second in range(10):
        window.advance(second)
        window.open.sums.written_blocks += 1
    traffic(window, 9.5, reuses=4)
    slot = window.open
    fitted.fit(10)
    window.advance(10)
    assert slot.expected[1] == 4
    assert 0 <= slot.expected[0] < 4
    before = slot.expected.copy()
    for second in range(10, 60):
        traffic(window, second, reuses=2)
        fitted.fit(second + 0.5)
    assert slot.expected.tolist() == before.tolist()

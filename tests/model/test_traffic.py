"""Sums of traffic: tables by hand, coarser tables keep every sum, tables that are merged equal one that was fed all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hitratio_plugin.model.traffic import Array, LagTable, LengthTable, RunTable, TrafficSums


def numbers(*values: float) -> Array:
    return np.array(values, dtype=float)


def test_runs_by_hand() -> None:
    """Two runs of 4 blocks after 10 s are one row; a run in use has a row of its own, whatever its length."""
    table = RunTable.merged([RunTable.of(numbers(10, 10, 0), numbers(4, 4, 4), own=numbers(1, 0, 1))])
    assert table.runs.tolist() == [1, 2]
    assert table.blocks.tolist() == [4, 8]
    assert table.reuse_seconds.tolist() == [0, 80]
    assert table.own_blocks.tolist() == [4, 4]
    assert table.reuse_times.tolist() == [0, 10]
    assert table.lengths.tolist() == [4, 4]
    assert (table.count, table.total_blocks) == (3, 12)


def test_kinds_without_a_run_are_no_rows() -> None:
    table = RunTable.of(numbers(1, 2), numbers(4, 8), counts=numbers(0, 3))
    assert (table.runs.tolist(), table.blocks.tolist()) == ([3], [24])
    assert np.isfinite(table.lengths).all()


def test_the_tail_integral_by_hand() -> None:
    """2 blocks after 1 s and 3 after 4 s: 5 blocks wait during the first second, 3 during the next three."""
    times, values = RunTable.of(numbers(1, 4), numbers(2, 3)).tail_integral
    assert times.tolist() == [0, 1, 4]
    assert values.tolist() == [0, 5, 14]


def test_lags_and_lengths_by_hand() -> None:
    sums = TrafficSums()
    for _ in range(2):
        sums.add(LagTable.of([5, 3]))
        sums.add(LengthTable.of(numbers(16, 17)))
    assert (sums.lags.lags.tolist(), sums.lags.blocks.tolist()) == ([1, 2], [10, 6])
    # 16 and 17 tokens share the bin from 2^4 to 2^4.25.
    assert (sums.lengths.bins.tolist(), sums.lengths.requests.tolist()) == ([16], [4])
    assert sums.lengths.tokens.tolist() == [66]


def many(seed: int, count: int) -> RunTable:
    random = np.random.default_rng(seed)
    times = np.where(random.random(count) < 0.1, 0.0, random.exponential(60.0, count))
    return RunTable.merged([RunTable.of(times, random.integers(1, 300, count).astype(float), own=0.5)])


@pytest.mark.parametrize("rows", [1000, 64, 32])
def test_a_coarser_table_keeps_every_sum_and_the_runs_in_use_apart(rows: int) -> None:
    table = many(1, 2000)
    coarse = table.coarsened(rows)
    assert len(coarse.bins) <= rows
    for column in ("runs", "blocks", "reuse_seconds", "own_blocks"):
        assert getattr(coarse, column).sum() == pytest.approx(getattr(table, column).sum())
    used, coarse_used = table.reuse_seconds == 0, coarse.reuse_seconds == 0
    assert coarse.blocks[coarse_used].sum() == table.blocks[used].sum()
    assert (np.diff(coarse.bins) > 0).all()


def test_a_table_that_is_small_enough_stays_as_it_is() -> None:
    table = many(2, 50)
    assert table.coarsened(len(table.bins)) is table
    assert len(table.coarsened(len(table.bins) - 1).bins) < len(table.bins)


def test_lengths_are_joined_before_times() -> None:
    """Lengths of 4 and 5.7 blocks (bins 4 and 5) after 10 s become one row; 20 s stays another."""
    coarse = RunTable.of(numbers(10, 10, 20), numbers(4, 5.7, 4)).coarsened(2)
    assert coarse.reuse_times.tolist() == [10, 20]
    assert coarse.blocks.tolist() == pytest.approx([9.7, 4])


def test_neighbours_in_time_are_joined_next() -> None:
    """One length, two neighbouring times: the second step joins them, and never a run in use."""
    table = RunTable.of(numbers(0, 10.0, 10.3), numbers(8, 8, 8))
    assert len(table.bins) == 3
    coarse = table.coarsened(2)
    assert coarse.blocks.tolist() == [8, 16]
    assert coarse.reuse_seconds.tolist() == pytest.approx([0, 162.4])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 5))
def test_merged_tables_equal_one_that_was_fed_all(first: int, second: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    times, lengths = random.exponential(30.0, first + second), random.integers(1, 90, first + second).astype(float)
    parts = [RunTable.of(times[:first], lengths[:first]), RunTable.of(times[first:], lengths[first:])]
    apart, whole = RunTable.merged(parts), RunTable.merged([RunTable.of(times, lengths)])
    assert apart.bins.tolist() == whole.bins.tolist()
    assert apart.reuse_seconds == pytest.approx(whole.reuse_seconds)
    assert apart.blocks.tolist() == whole.blocks.tolist()

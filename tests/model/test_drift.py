"""Drift: sums to the whole always; the one factor that changed is named and explains the change."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.model.drift import FACTORS, drift
from vllm_hitratio_plugin.model.reuse_time import ReuseTimeModel
from vllm_hitratio_plugin.model.traffic import RunTable, TrafficSums
from vllm_hitratio_plugin.monitor import Monitor

CAPACITY = 600


def slots(
    seed: int,
    *,
    rate: float = 1.0,
    size: float = 10.0,
    reuse_time: float = 100.0,
    share: float = 0.5,
    in_use: float = 50.0,
    count: int = 20,
) -> list[TrafficSums]:
    """A window of conversations of three prompts, with the noise of Poisson arrivals."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        sums = TrafficSums(seconds=30.0, first_turns=float(random.poisson(30 * rate) + 1))
        sums.requests = 3 * sums.first_turns
        runs = int(2 * sums.first_turns)
        lengths = np.full(runs, size * share * 1.5)
        sums.add(RunTable.of(random.exponential(reuse_time, runs), lengths, own=1.0))
        sums.prompt_blocks = size * sums.requests
        sums.written_blocks = sums.prompt_blocks - sums.reusable_blocks
        sums.in_use_blocks = in_use * sums.requests
        made.append(sums)
    return made


CHANGES: dict[str, Any] = {
    "arrival_rate": {"rate": 2.0},
    "conversation_size": {"size": 15.0},
    "reuse_times": {"reuse_time": 200.0},
    "reusable_share": {"share": 0.3},
    "blocks_in_use": {"in_use": 200.0},
}


@pytest.mark.parametrize("factor", FACTORS)
def test_the_factor_that_changed_is_named_and_explains_the_change(factor: str) -> None:
    found = drift(slots(1), slots(2, **CHANGES[factor]), CAPACITY)
    assert found is not None
    assert found.significant[0] == factor
    assert found.change < -0.02
    assert 0.8 <= found.contributions[factor] / found.change <= 1.2


def test_without_a_change_no_factor_is_significant() -> None:
    for seed in range(10):
        found = drift(slots(seed), slots(seed + 100), CAPACITY)
        assert found is not None
        assert found.significant == []


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.3, 3),
    st.floats(3, 40),
    st.floats(5, 400),
    st.floats(0.05, 0.6),
    st.floats(0, 500),
)
def test_the_parts_sum_to_the_whole(rate: float, size: float, reuse_time: float, share: float, in_use: float) -> None:
    before, now = slots(1), slots(2, rate=rate, size=size, reuse_time=reuse_time, share=share, in_use=in_use)
    found = drift(before, now, CAPACITY)
    assert found is not None
    assert sum(found.contributions.values()) == pytest.approx(found.change, abs=1e-12)
    assert found.before == pytest.approx(ReuseTimeModel(TrafficSums.total(before)).curve.hit_ratio(CAPACITY), abs=1e-12)
    assert found.now == pytest.approx(ReuseTimeModel(TrafficSums.total(now)).curve.hit_ratio(CAPACITY), abs=1e-12)


def test_windows_without_reuse_or_starts_say_nothing() -> None:
    assert drift([], slots(1), CAPACITY) is None
    assert drift(slots(1), [TrafficSums(seconds=10, requests=5, prompt_blocks=9)], CAPACITY) is None


def test_the_monitor_compares_its_window_with_the_one_before() -> None:
    """Conversations of four prompts; half-way, twice as many start a second: the rate is named, the ratio falls."""
    random = np.random.default_rng(3)
    prompts: list[tuple[float, str, int]] = []
    time, number = 0.0, 0
    while time < 6000:
        time += random.exponential(1.0 if time < 3000 else 0.5)
        number += 1
        at = time
        for turn in range(4):
            prompts.append((at, str(number), 200 * (turn + 1)))
            at += random.exponential(40)
    monitor = Monitor(block_size=16, capacity_blocks=2000, window_seconds=2000, slots=40, grid=())
    for key, (at, name, tokens) in enumerate(sorted(prompts)):
        if at > 5500:
            break
        monitor.admit(Access(at, key, tokens, [f"{name}/{block}" for block in range(tokens // 16)], 0))
        monitor.release(at, key)
        if key == 3000:
            early = monitor.refresh(at)
            assert early.drift_contributions == {}
    estimate = monitor.refresh(5500.0)
    assert estimate.drift_significant[0] == "arrival_rate"
    assert set(estimate.drift_contributions) == set(FACTORS)
    whole = sum(estimate.drift_contributions.values())
    assert whole < -0.05
    assert estimate.drift_contributions["arrival_rate"] / whole > 0.8

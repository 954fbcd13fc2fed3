"""The index against vLLM's own scheduler: every admission's hit is the exact LRU's, whatever happens around it."""

from pathlib import Path

import pytest

from tests.support.random_schedule import SCHEDULES, Schedule, run

pytestmark = pytest.mark.vllm

#: Of a run's admissions, those whose hit may differ: a block of an answer counts from the end of the answer on, not
#: from the step that fills it (docs/model.md#copies-and-content-in-flight).
ANSWERS = 0.002


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_hit_is_the_exact_lrus(name: str, tiny_model: Path) -> None:
    _compare(tiny_model, 0, SCHEDULES[name])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_every_hit_is_the_exact_lrus_with_many_seeds(seed: int, tiny_model: Path) -> None:
    _compare(tiny_model, seed, list(SCHEDULES.values())[seed % (len(SCHEDULES) - 1)])


def _compare(model: Path, seed: int, schedule: Schedule) -> None:
    found = run(str(model), seed, schedule)
    assert found.prompts >= schedule.prompts
    assert found.admissions > schedule.prompts * 0.4
    assert found.hit_blocks > 0
    assert found.outcomes["capacity/evicted"] > 0
    if schedule.threshold:
        assert found.outcomes["in_flight/prefill"] > 0
    if schedule.answers == 1:
        assert not found.different
    assert len(found.different) <= ANSWERS * found.admissions, found.different

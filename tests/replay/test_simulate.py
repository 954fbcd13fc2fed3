"""Virtual time: order of events, waiting, the measurement window, what the monitor is told."""

from collections.abc import Hashable

import pytest

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.replay.law import exponential, parse_law
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.simulate import simulate
from vllm_hitratio_plugin.replay.trace import Prompt, Trace

ONE_SECOND, TEN_SECONDS = parse_law("fixed:1"), parse_law("fixed:10")


class Log:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float, Hashable]] = []
        self.accesses: list[Access] = []

    def admit(self, access: Access) -> None:
        self.events.append(("admit", access.time, access.key))
        self.accesses.append(access)

    def release(self, time: float, key: Hashable) -> None:
        self.events.append(("release", time, key))


def trace(*prompts: tuple[float, int, str]) -> Trace:
    """(time, blocks, family), each prompt one token longer than its full blocks."""
    return Trace(
        "test",
        10,
        [
            Prompt(time, size * 10 + 1, [f"{family}{depth}" for depth in range(size)], conversation=family)
            for time, size, family in prompts
        ],
    )


def test_without_service_time_each_prompt_is_over_before_the_next() -> None:
    log = Log()
    observed = simulate(trace((0, 2, "a"), (0, 2, "b"), (5, 3, "a")), BlockLRU(9, 10), capacity_blocks=9, observer=log)
    assert log.events == [
        ("admit", 0, 0),
        ("release", 0, 0),
        ("admit", 0, 1),
        ("release", 0, 1),
        ("admit", 5, 2),
        ("release", 5, 2),
    ]
    assert log.accesses[2] == Access(5, 2, 31, ["a0", "a1", "a2"], 20, 0, 0, "a")
    assert (observed.prompts, observed.prompt_blocks, observed.hit_blocks) == (3, 10, 2)
    assert observed.hit_ratio == 0.2


def test_prompts_wait_their_turn_for_blocks() -> None:
    """Capacity 6: a takes 4; b (4) does not fit, and c (1), which would, waits behind it."""
    log = Log()
    observed = simulate(
        trace((0, 3, "a"), (1, 3, "b"), (2, 0, "c"), (30, 0, "d")),
        BlockLRU(6, 10),
        capacity_blocks=6,
        observer=log,
        service=TEN_SECONDS,
    )
    assert log.events == [
        ("admit", 0, 0),
        ("release", 10, 0),
        ("admit", 10, 1),
        ("admit", 10, 2),
        ("release", 20, 1),
        ("release", 20, 2),
        ("admit", 30, 3),
    ]
    assert [access.in_use_blocks for access in log.accesses] == [0, 0, 4, 0]
    assert (observed.delayed, observed.waiting, observed.rejected) == (2, 0, 0)
    assert observed.mean_in_use_blocks == 1


def test_a_release_comes_before_an_admission_at_the_same_moment() -> None:
    observed = simulate(trace((0, 3, "a"), (10, 3, "b")), BlockLRU(6, 10), capacity_blocks=6, service=TEN_SECONDS)
    assert observed.delayed == 0


def test_a_prompt_larger_than_the_pool_is_counted_and_blocks_nobody() -> None:
    observed = simulate(
        trace((0, 9, "a"), (1, 2, "b")), BlockLRU(6, 10), capacity_blocks=6, service=parse_law("fixed:1")
    )
    assert (observed.rejected, observed.prompts) == (1, 1)


def test_what_still_waits_at_the_end_is_said() -> None:
    observed = simulate(trace((0, 3, "a"), (1, 3, "b")), BlockLRU(6, 10), capacity_blocks=6, service=TEN_SECONDS)
    assert (observed.prompts, observed.waiting) == (1, 1)


def test_only_the_window_is_measured() -> None:
    prompts = trace((0, 1, "a"), (1, 1, "a"), (2, 1, "a"), (3, 1, "a"))
    observed = simulate(prompts, BlockLRU(6, 10), capacity_blocks=6, window=(1, 2))
    assert (observed.prompts, observed.hit_blocks, observed.prompt_blocks) == (2, 2, 4)
    nothing = simulate(prompts, BlockLRU(6, 10), capacity_blocks=6, window=(7, 8))
    assert nothing.hit_ratio is None
    assert nothing.mean_in_use_blocks is None


def test_service_times_belong_to_the_prompts() -> None:
    """Whatever the pool does, the n-th prompt holds its blocks as long."""
    prompts = trace(*((float(time), 1 + time % 4, "abc"[time % 3]) for time in range(60)))
    spans = []
    for capacity in (20, 200):
        log = Log()
        simulate(
            prompts, BlockLRU(capacity, 10), capacity_blocks=capacity, observer=log, service=exponential(8), seed=2
        )
        admitted = {key: time for event, time, key in log.events if event == "admit"}
        spans.append({key: time - admitted[key] for event, time, key in log.events if event == "release"})
    common = spans[0].keys() & spans[1].keys()
    assert len(common) > 30
    assert all(spans[0][key] == pytest.approx(spans[1][key]) for key in common)

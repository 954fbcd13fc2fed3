"""The monitor: each rule of docs/model.md#accounting by a case worked out by hand, then what holds for any traffic."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.model.traffic import TrafficSums
from vllm_hitratio_plugin.monitor import Monitor, capacity_grid
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.pools.pool import Unhashed
from vllm_hitratio_plugin.replay.simulate import simulate
from vllm_hitratio_plugin.replay.trace import Prompt, Trace
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, OUTCOMES, REUSE_TIME, Estimate

B = 16


class Story:
    """Prompts told by hand; a prompt's path names its full blocks, one letter each."""

    def __init__(self, capacity: int = 1000, block_size: int = B, **options: object) -> None:
        given_options: dict[str, object] = {"least_requests": 1, "least_reuses": 1, "window_seconds": 600.0}
        given_options.update(options)
        self.block_size = block_size
        self.monitor = Monitor(block_size=block_size, capacity_blocks=capacity, **given_options)  # type: ignore[arg-type]
        self.keys = itertools.count()

    def admit(
        self, time: float, path: str, tail: int = 1, hit: int | None = 0, pinned: int | None = 0, **more: object
    ) -> Hashable:
        """Admit a prompt of the path's full blocks and ``tail`` tokens; ``hit`` in blocks."""
        key = next(self.keys)
        blocks = [path[: depth + 1] for depth in range(len(path))]
        tokens = len(path) * self.block_size + tail
        hit_tokens = None if hit is None else hit * self.block_size
        access = Access(time, key, tokens, blocks, hit_tokens, in_use_blocks=pinned)
        self.monitor.admit(access._replace(**more))  # type: ignore[arg-type]
        return key

    def serve(self, time: float, path: str, tail: int = 1, hit: int | None = 0, **more: Any) -> None:
        """Admit, and release at once."""
        self.monitor.release(time, self.admit(time, path, tail, hit, **more))

    def estimate(self, time: float = 100.0) -> Estimate:
        return self.monitor.refresh(time)

    def sums(self) -> TrafficSums:
        """Everything so far."""
        return self.monitor._window.span(1e9, 1e9).sums


def test_the_papers_worked_example() -> None:
    """Appendix B.3: X = (2, 4, 3), Y = (2, 5): R = 2, 8, 16, all resident: h = (0 + 2 + 8) / 26."""
    story = Story(capacity=26)
    prompt = "abcdefghijklmnop"
    story.serve(0, prompt[:2], tail=0)
    story.serve(10, prompt[:8], tail=0, hit=2)
    story.serve(20, prompt[:16], tail=0, hit=8)
    estimate = story.estimate()
    assert estimate.observed == 10 / 26
    assert estimate.predicted[REUSE_TIME] == pytest.approx(10 / 26)
    assert estimate.ceiling == 10 / 26
    assert estimate.divergence == pytest.approx(0)
    assert estimate.history_workload == 26  # A_R
    assert estimate.reusable_workload == 10  # A_H, here all of it hashed
    assert estimate.lifetime_blocks == 16  # E[B]
    assert estimate.turns == 3
    counters = story.monitor.counters
    assert (counters.prompt_blocks, counters.hit_blocks, counters.requests) == (26, 10, 3)
    assert counters.predicted_hit_blocks[REUSE_TIME] == pytest.approx(10)


@pytest.mark.parametrize(("unhashed", "written"), [("head", [2, 4]), ("tail", [3, 5])])
def test_rules_1_and_2_what_a_turn_writes(unhashed: str, written: list[int]) -> None:
    """R = 3 then 7 with E = 2: R_j - E_j = 5 where the partly filled block queues up, less it where it does not.

    (R_j - R_{j-1} = 4 would forget that the first turn's partly filled block is written again.)
    """
    story = Story(unhashed=unhashed)
    story.serve(0, "ab", tail=8)
    story.estimate(1)
    assert story.sums().written_blocks == written[0]
    story.serve(10, "abcdef", tail=8, hit=2)
    story.estimate(20)
    assert story.sums().written_blocks == sum(written)


@pytest.mark.parametrize(
    ("tail", "reusable", "written"),
    [(0, 3, 1), (1, 4, 0)],
    ids=["four whole blocks: three can hit", "and one token: four can hit"],
)
def test_rule_3_the_last_token_is_never_served(tail: int, reusable: int, written: int) -> None:
    story = Story()
    story.serve(0, "abcd", tail=tail)
    before = story.monitor.refresh(0.5).requests
    assert before == 1
    story.serve(1, "abcd", tail=tail, hit=reusable)
    estimate = story.estimate()
    assert story.sums().reusable_blocks == reusable
    assert story.sums().written_blocks == 4 + written
    assert estimate.predicted[REUSE_TIME] == estimate.observed


def test_rule_3_with_speculative_decoding() -> None:
    """One more block is given up by every hit (EAGLE, MTP): case 15's loss is constant, not a divergence."""
    story = Story(dropped_blocks=1)
    story.serve(0, "abcd")
    story.serve(1, "abcd", hit=3)
    story.serve(2, "x")
    story.serve(3, "x", hit=0)
    estimate = story.estimate()
    assert story.sums().reusable_blocks == 3
    assert estimate.divergence == pytest.approx(0)


def test_rule_3_a_growing_history_gives_up_a_block_too() -> None:
    """Four blocks are known, the prompt has six: vLLM matches four and drops the last of them."""
    story = Story(dropped_blocks=1)
    story.serve(0, "abcd")
    story.serve(1, "abcdef", hit=3)
    estimate = story.estimate()
    assert story.sums().reusable_blocks == 3
    assert estimate.divergence == pytest.approx(0)
    assert estimate.engine_divergence == pytest.approx(0)


@pytest.mark.parametrize(("capacity", "left"), [(6, 0), (7, 1), (8, 2), (9, 3), (10, 4), (99, 4)])
def test_rule_4_a_suffix_goes_before_its_prefix(capacity: int, left: int) -> None:
    """Four blocks with six written since: an LRU of N has min(4, max(0, N - 6)) of them, and so has a real pool."""
    story = Story(capacity, index_blocks=1000)
    pool = BlockLRU(capacity, B)
    hits = []
    for number, (path, tail) in enumerate([("abcd", 0), ("uvwxyz", 0), ("abcd", 1)]):
        hits.append(pool.admit(number, len(path) * B + tail, [path[: depth + 1] for depth in range(len(path))]) or 0)
        pool.release(number)
        story.serve(float(number), path, tail, hit=hits[-1])
    story.estimate()
    assert hits == [0, 0, left]
    assert story.monitor.counters.shadow_hit_blocks == left
    assert story.monitor.counters.ceiling_hit_blocks == 4


def test_rule_5_age_runs_from_the_release_to_the_lookup() -> None:
    """Arrivals 60 s apart, but the first turn held its blocks for 50: they aged 10 s."""
    story = Story()
    first = story.admit(0, "ab")
    story.monitor.release(50, first)
    story.serve(60, "abcd", hit=2)
    story.estimate()
    whole = story.sums()
    assert whole.runs.reuse_times == pytest.approx([10])
    assert whole.interarrivals.seconds == pytest.approx([60])  # F is of arrivals (the paper's W)


def test_rule_5_a_turn_that_finds_its_history_held_has_gap_zero() -> None:
    """Whatever the capacity, what a request holds is in the cache."""
    story = Story(capacity=4, grid=(1, 4))
    story.admit(0, "ab")
    for number in range(20):
        story.serve(1 + number, chr(1000 + number) + "x")
    story.admit(30, "abc", hit=2)
    estimate = story.estimate(31)
    assert story.sums().runs.reuse_seconds[0] == 0
    # 2 + 1, twenty of 3, 4 prompt blocks: the two held ones are hits in a cache of a single block.
    assert estimate.curve[1] == pytest.approx(2 / 67)


def test_rule_5_blocks_in_use_take_their_room() -> None:
    """The same traffic, once beside 500 blocks that others hold, once in a cache smaller by as much."""

    def predicted(capacity: int, pinned: int) -> float | None:
        story = Story(capacity, grid=(capacity,))
        for time, path in regular_traffic(400):
            story.serve(time, path, pinned=pinned)
        return story.estimate(400).predicted[REUSE_TIME]

    free, beside, smaller = predicted(800, 0), predicted(800, 500), predicted(300, 0)
    assert beside == pytest.approx(smaller)
    assert free is not None
    assert beside is not None
    assert free > beside + 0.05


def test_rule_6_a_shared_prefix_is_as_young_as_its_last_user() -> None:
    """Two conversations behind one system prompt: its two blocks age 5 s, the history behind them 20 s."""
    story = Story()
    story.serve(0, "SSab")
    story.serve(15, "SSpq", hit=2)
    story.serve(20, "SSabcd", hit=4)
    estimate = story.estimate()
    whole = story.sums()
    assert whole.runs.reuse_times == pytest.approx([5, 15, 20])
    assert whole.runs.blocks.tolist() == [2, 2, 2]
    assert (estimate.observed, estimate.ceiling) == (6 / 17, 6 / 17)
    assert story.monitor.counters.forks == 1
    assert story.monitor.counters.conversations == 2


def test_rule_7_answers_that_are_cached_count() -> None:
    """Prompt of 2 blocks, answer of 3 cached with it: the next turn finds 5, and 3 more were written."""
    story = Story()
    key = story.admit(0, "ab", tail=4)
    blocks = ["abcde"[: depth + 1] for depth in range(5)]
    story.monitor.release(2, key, blocks, 5)
    story.serve(10, "abcdefg", hit=5)
    estimate = story.estimate()
    whole = story.sums()
    assert whole.written_blocks == 2 + 3 + 2
    assert whole.reusable_blocks == 5
    assert estimate.observed == estimate.predicted[REUSE_TIME] == pytest.approx(5 / 11)


def test_a_prefill_that_was_broken_off_is_not_expected() -> None:
    """Eight blocks, aborted after three; sent again, three are there, and five were written once, not twice."""
    story = Story()
    key = story.admit(0, "abcdefgh", tail=4, computed_tokens=B)
    story.monitor.progress(key, 3 * B + 5)
    story.monitor.release(2, key)
    story.serve(10, "abcdefgh", tail=4, hit=3)
    story.serve(20, "abcdefgh", tail=4, hit=8)
    estimate = story.estimate()
    assert story.sums().reusable_blocks == 3 + 8
    assert story.sums().written_blocks == 8
    assert estimate.observed == estimate.predicted[REUSE_TIME] == pytest.approx(11 / 27)
    assert story.monitor.counters.conversations == 1
    fates = dict(zip(OUTCOMES, story.monitor.counters.outcomes, strict=True))
    assert fates["compulsory", "new"] == 8 + 5
    assert fates["compulsory", "diverged"] == 0


def test_content_is_known_as_far_as_it_was_computed() -> None:
    """Eight blocks in chunks of three: who asks meanwhile hits what is there, and the rest is in flight."""
    story = Story()
    first = story.admit(0, "abcdefgh", computed_tokens=3 * B)
    story.admit(1, "abcdefgh", hit=3, computed_tokens=4 * B)
    story.monitor.progress(first, 6 * B)
    story.admit(2, "abcdefgh", hit=6)
    story.monitor.progress(first, 8 * B + 1)
    story.admit(3, "abcdefgh", hit=8)
    estimate = story.estimate()
    assert (estimate.observed, estimate.ceiling) == (17 / 36, 17 / 36)
    assert estimate.predicted[REUSE_TIME] == pytest.approx(17 / 36)
    outcomes = dict(zip(OUTCOMES, story.monitor.counters.outcomes, strict=True))
    assert {name: blocks for name, blocks in outcomes.items() if blocks} == {
        ("hit", "local"): 3 + 6 + 8,
        ("compulsory", "new"): 8,
        ("in_flight", "prefill"): 5 + 2,
        ("partial", "tail"): 4,
    }
    assert story.sums().written_blocks == 8 + 5 + 2


def test_what_a_connector_still_loads_is_in_flight() -> None:
    """Four of five blocks are loaded; until they have come, nobody hits them."""
    story = Story()
    loading = story.admit(0, "abcde", external_tokens=4 * B, computed_tokens=0)
    story.admit(1, "abcde", hit=0)
    story.monitor.progress(loading, 5 * B + 1)
    story.admit(2, "abcde", hit=5)
    story.estimate()
    outcomes = dict(zip(OUTCOMES, story.monitor.counters.outcomes, strict=True))
    assert outcomes["hit", "external"] == 4
    assert outcomes["in_flight", "prefill"] == 5
    assert outcomes["hit", "local"] == 5
    assert story.monitor.counters.ceiling_hit_blocks == 5


def test_of_two_copies_the_one_written_first_is_hit_until_it_is_evicted() -> None:
    """Computed twice at once; then 7 blocks, the release of the second copy, and 4: in 14 blocks, it alone is left."""
    story = Story(14, index_blocks=1000)
    first = story.admit(0, "abcd", computed_tokens=0, pinned=None)
    second = story.admit(1, "abcd", pinned=None)
    story.monitor.progress(first, 4 * B + 1)
    story.monitor.release(2, first)
    story.serve(3, "tuvwxyz", pinned=None)
    story.monitor.release(4, second)
    story.serve(5, "mnop", pinned=None)
    story.serve(6, "abcd", hit=4, pinned=None)
    story.serve(7, "tuvwxyz", hit=0, pinned=None)
    story.estimate()
    # "abcd" hits its second copy. Above "tuvwxyz" are then that copy and "mnop", and one block is empty.
    assert story.monitor.counters.shadow_hit_blocks == 4 + 14 - 8 - 1
    assert story.monitor.index_blocks == 4 + 7 + 4


def test_a_second_prefill_that_was_broken_off_takes_nothing_from_the_first() -> None:
    """What was known before stays known, in caches that are large enough for it."""
    story = Story(2, grid=(2, 100))
    story.serve(0, "abcdefgh")
    story.serve(1, "xyz")
    story.monitor.release(3, story.admit(2, "abcdefgh", computed_tokens=B))
    story.serve(4, "abcdefgh", hit=1)
    assert story.estimate().curve[100] == pytest.approx(16 / 31)


def test_an_id_links_turns_whose_history_was_rewritten() -> None:
    """Case 11: turn 1 had 2 blocks, 1 of thinking and 1 of answer follow; turn 2 drops the thinking."""
    story = Story()
    key = story.admit(0, "ab", conversation="one")
    story.monitor.release(1, key, ["a", "ab", "abT", "abTA"], 4)
    story.serve(10, "abAcd", hit=2, conversation="one")
    estimate = story.estimate()
    assert story.sums().reusable_blocks == 2
    assert estimate.turns == 2
    assert story.monitor.counters.unreused_history_blocks == 2


def test_without_ids_a_fork_starts_a_conversation_and_a_longer_prompt_continues_one() -> None:
    story = Story()
    story.serve(0, "ab")
    story.serve(1, "abcd")
    story.serve(2, "abXY")
    story.serve(3, "abcdef")
    assert story.estimate().turns == 2
    assert story.monitor.counters.conversations == 2


def test_too_little_is_a_state_not_a_number() -> None:
    story = Story(least_requests=200, least_reuses=50, target=0.5)
    for number in range(199):
        story.serve(number / 10, f"{number % 20}ab", hit=2)
    estimate = story.estimate(20)
    assert not estimate.ready
    assert estimate.requests == 199
    figures = vars(estimate)
    for name in (
        *(
            "observed",
            "observed_stderr",
            "divergence",
            "divergence_stderr",
            "ceiling",
            "arrival_rate",
            "history_workload",
            "turns",
        ),
        *("reusable_workload", "lifetime_blocks", "characteristic_time", "reachable", "recommended_blocks"),
    ):
        assert figures[name] is None, name
    assert estimate.predicted == {REUSE_TIME: None, MEAN_FIELD: None}
    assert estimate.predicted_stderr == {REUSE_TIME: None, MEAN_FIELD: None}
    assert estimate.curve == {}
    story.serve(19.95, "1ab")
    assert story.estimate(20).ready


def test_nothing_at_all() -> None:
    estimate = Story().estimate(5)
    assert not estimate.ready
    assert (estimate.observed, estimate.in_use_blocks, estimate.ceiling) == (None, None, None)


def test_without_observed_hits_there_is_a_prediction_only() -> None:
    story = Story()
    story.serve(0, "ab", hit=None)
    story.serve(1, "abc", hit=None)
    story.estimate()
    assert story.monitor.counters.predicted_hit_blocks[REUSE_TIME] == pytest.approx(2)
    assert story.monitor.counters.hit_tokens == 0


def test_a_target_out_of_reach_is_said_and_not_answered() -> None:
    """Ceiling 2/7."""
    reachable, beyond = Story(target=0.25), Story(target=0.3)
    for story in (reachable, beyond):
        story.serve(0, "ab")
        story.serve(10, "abc", hit=2)
    assert reachable.estimate().reachable is True
    estimate = beyond.estimate()
    assert estimate.reachable is False
    assert estimate.recommended_blocks is None
    assert estimate.target == 0.3
    assert Story().estimate().reachable is None


def test_the_recommended_capacity_reaches_the_target() -> None:
    """What is predicted at the recommended capacity is the target itself."""
    recommended = None
    for capacity in (300, None):
        story = Story(capacity or round(recommended or 0), target=0.5)
        for time, path in regular_traffic(600):
            story.serve(time, path)
        estimate = story.estimate(600)
        recommended = estimate.recommended_blocks
    assert estimate.predicted[REUSE_TIME] == pytest.approx(0.5, abs=0.002)


@pytest.mark.parametrize(
    ("block_size", "tokens", "hits"),
    [
        *((528, 480, 0), (528, 552, 528), (528, 979, 528)),  # case 1
        *((3584, 2015, 0), (3584, 8015, 7168), (3584, 32015, 28672), (3584, 47074, 46592)),  # case 2
    ],
)
def test_cases_1_and_2_one_prompt_twice(block_size: int, tokens: int, hits: int) -> None:
    story = Story(block_size=block_size)
    monitor = story.monitor
    blocks = list(range(tokens // block_size))
    for time in (0, 1):
        monitor.admit(Access(time, time, tokens, blocks, hits * time))
        monitor.release(time, time)
    story.estimate()
    counters = monitor.counters
    assert counters.ceiling_hit_blocks * block_size == hits
    assert counters.predicted_hit_blocks[REUSE_TIME] * block_size == pytest.approx(hits)
    assert counters.hit_tokens == hits
    assert counters.short_prompts == (2 if hits == 0 else 0)


def test_case_3_no_prompt_is_as_long_as_a_block() -> None:
    story = Story(block_size=4096, least_reuses=0)
    for number in range(20):
        story.serve(number, "", tail=2000)
    estimate = story.estimate()
    assert (estimate.observed, estimate.ceiling) == (0, 0)
    assert story.monitor.counters.short_prompts == 20


def test_case_4_a_request_that_resumes_is_no_new_prompt() -> None:
    """Preempted again and again: it writes blocks, but is neither a prompt nor a hit."""
    story = Story(least_reuses=0)
    for number in range(10):
        time = 10.0 * number
        path = f"{chr(65 + number)}bc"
        key = story.admit(time, path)
        for again in range(3):
            story.monitor.release(time + again, key)
            key = story.admit(time + again, path, hit=3, counted=False, resumed=True)
        story.monitor.release(time + 3, key)
    estimate = story.estimate()
    assert (estimate.observed, estimate.ceiling) == (0, 0)
    counters = story.monitor.counters
    assert (counters.requests, counters.hit_tokens, counters.resumed) == (10, 0, 30)


def test_case_5_a_prompt_that_is_held_is_counted_once() -> None:
    story = Story()
    access = Access(0, "one", 33, ["a", "ab"], 0)
    for time in range(5):
        story.monitor.admit(access._replace(time=time))
    story.monitor.release(9, "one")
    story.monitor.release(9, "one")
    story.monitor.release(9, "unknown")
    story.estimate()
    assert story.monitor.counters.requests == 1
    assert story.monitor.running == 0


def test_case_6_ratios_are_of_sums_not_means_of_ratios() -> None:
    """A shared prompt of 100 blocks alternates with unique ones of 1: weighted by blocks, not by requests."""
    story = Story()
    shared = "".join(chr(200 + place) for place in range(100))
    for number in range(20):
        story.serve(number, shared, hit=100 if number else 0)
        story.serve(number + 0.5, chr(1000 + number), tail=0)
    estimate = story.estimate()
    assert estimate.observed == pytest.approx(19 * 100 / (20 * 101 + 20 * 1))
    assert estimate.predicted[REUSE_TIME] == pytest.approx(estimate.observed)


def test_case_7_a_window_forgets() -> None:
    """Hours at 80 %, then 10 %: within a window the figure has moved, the counters' average has not."""
    story = Story(capacity=20, window_seconds=60, slots=6)
    numbers = itertools.count()

    def hour(begin: int, seconds: int, hit: int) -> None:
        for second in range(begin, begin + seconds):
            key = chr(1000 + next(numbers))
            story.serve(second, "abcdefgh"[:hit] + key * (9 - hit), hit=hit if second else 0)

    hour(0, 3600, 8)
    assert story.estimate(3600).observed == pytest.approx(0.8)
    hour(3600, 70, 1)
    estimate = story.estimate(3670)
    assert estimate.observed == pytest.approx(0.1)
    assert estimate.predicted[REUSE_TIME] == pytest.approx(0.1, abs=0.01)
    assert estimate.window_seconds <= 70
    counters = story.monitor.counters
    assert counters.hit_blocks / counters.prompt_blocks > 0.78


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_case_8_r_rounds_of_twenty_clients(rounds: int) -> None:
    """Round r of prompts that grow by equal turns: r/(r+1) of it was seen, if 20·(r+1)·turn blocks are there."""
    turn = 5
    for capacity, expected in ((20 * (rounds + 1) * turn, rounds / (rounds + 1)), (20 * rounds * turn // 2, 0.0)):
        story = Story(capacity, window_seconds=100, slots=10, grid=(capacity,), index_blocks=10_000)
        counters = []
        for number in range(rounds + 1):
            for client in range(20):
                path = chr(100 + client) + "abcdefghijklmnopqrstuvwxyz"[: (number + 1) * turn - 1]
                story.serve(number * 100 + client * 5, path, tail=0, hit=None)
            story.estimate(number * 100 + 99)
            counters.append(story.monitor.counters)
        prompts = counters[-1].prompt_blocks - counters[-2].prompt_blocks
        hits = counters[-1].predicted_hit_blocks[REUSE_TIME] - counters[-2].predicted_hit_blocks[REUSE_TIME]
        shadow = counters[-1].shadow_hit_blocks - counters[-2].shadow_hit_blocks
        assert prompts == 20 * (rounds + 1) * turn
        assert hits / prompts == pytest.approx(expected, abs=0.02)
        assert shadow / prompts == pytest.approx(expected)


def test_case_10_the_last_block_goes_first() -> None:
    """Three blocks, one more needed: a cache of three keeps the first two."""
    story = Story(3, index_blocks=100)
    story.serve(0, "abc", tail=0)
    story.serve(1, "x", tail=0)
    story.serve(2, "abc", hit=2)
    story.estimate()
    assert story.monitor.counters.shadow_hit_blocks == 2


def test_case_12_prompts_that_diverge_early_have_a_flat_curve() -> None:
    """40 fixed tokens, 16 that change, 23,944 fixed, 200 new; b = 16: two reusable blocks a prompt."""
    story = Story(capacity=4000)
    blocks = (40 + 16 + 23_944 + 200) // 16
    for number in range(200):
        path = ["f0", "f1", *(f"{number}-{place}" for place in range(blocks - 2))]
        story.monitor.admit(Access(number * 0.1, number, 24_200, path, 32 if number else 0))
        story.monitor.release(number * 0.1, number)
    estimate = story.estimate(20)
    assert estimate.ceiling == pytest.approx(2 / 1513, rel=0.01)
    ratios = [ratio for size, ratio in estimate.curve.items() if size > 2 * blocks]
    assert max(ratios) - min(ratios) < 1e-6
    assert story.monitor.counters.fork_depths == {2: 199}


def test_case_16_a_reset_is_not_the_engines_fault() -> None:
    story = Story(least_reuses=0)
    story.serve(0, "abcd")
    story.monitor.reset(5)
    story.serve(6, "abcdef")
    estimate = story.estimate()
    assert story.monitor.last_reset == 5
    assert story.monitor.counters.resets == 1
    assert (estimate.ceiling, estimate.predicted[REUSE_TIME], estimate.divergence) == (0, 0, 0)
    assert dict(zip(OUTCOMES, story.monitor.counters.outcomes, strict=True))["unexplained", "reset"] == 4


def test_counters_only_rise_and_ratios_of_increases_are_exact() -> None:
    """What Prometheus does with two scrapes gives the ratio of the prompts between them."""
    story = Story(200, window_seconds=50, slots=5, grid=(100, 200, 400))
    before = story.monitor.counters
    last = 0.0
    for index, (time, path) in enumerate(regular_traffic(300)):
        story.serve(time, path, hit=0)
        if index % 17 == 0:
            last = time
            story.estimate(time)
            now = story.monitor.counters
            assert now.predicted_hit_blocks[REUSE_TIME] >= before.predicted_hit_blocks[REUSE_TIME]
            assert now.predicted_hit_blocks[MEAN_FIELD] >= before.predicted_hit_blocks[MEAN_FIELD]
            assert all(now.curve_hit_blocks[size] >= before.curve_hit_blocks[size] for size in (100, 200, 400))
            assert now.curve_hit_blocks[100] <= now.curve_hit_blocks[200] <= now.curve_hit_blocks[400]
            assert now.curve_hit_blocks[400] <= now.ceiling_hit_blocks * (1 + 1e-9)
            before = now
    assert last > 250


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("every", "length"), [(10, 1), (20, 2), (60, 3)])
def test_bursts_within_a_slot_of_the_window(every: float, length: float, seed: int) -> None:
    """All traffic within a tenth of the time, blocks that survive for a part of a burst (.1 for .02 in whole slots)."""
    story = Story(60, window_seconds=600, slots=30, grid=(30, 120))
    for time, path in regular_traffic(1200, seed, rate=2.0):
        story.serve(time // every * every + time % every * length / every, path, tail=0, hit=None)
    story.estimate(1199)
    counters = story.monitor.counters
    predicted = counters.curve_hit_blocks | {60: counters.predicted_hit_blocks[REUSE_TIME]}
    exact = counters.shadow_curve_hit_blocks | {60: counters.shadow_hit_blocks}
    for capacity, hits in exact.items():
        assert hits > 0
        assert (predicted[capacity] - hits) / counters.prompt_blocks == pytest.approx(0, abs=0.006), capacity
    assert story.sums().requests == counters.requests


def test_a_burst_beyond_all_measure_has_its_cuts_counted() -> None:
    """A thousand caches in one slot: as the parts get larger, there are some dozens of them, not thousands."""
    story = Story(40)
    cuts = []
    for slot in range(3):
        for number in range(2000):
            story.serve(20 * slot + number / 100, chr(100 + number) * 20, tail=0)
        cuts.append(story.monitor._parts._cuts)
    assert 40 < cuts[0] < 300
    assert max(cuts[1:]) <= 41


def test_the_grid_is_shared_between_like_replicas() -> None:
    assert capacity_grid(2275) == (192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
    assert set(capacity_grid(2275)) & set(capacity_grid(2000)) >= {512, 1024, 2048, 4096}


# What must hold of any traffic


def regular_traffic(
    seconds: float, seed: int = 1, rate: float = 1.0, mean_gap: float = 25.0
) -> list[tuple[float, str]]:
    """Conversations of 1 to 8 turns that grow by 1 to 5 blocks; sorted by time."""
    chooser = random.Random(seed)
    prompts: list[tuple[float, str]] = []
    time = 0.0
    for number in itertools.count():
        time += chooser.expovariate(rate)
        if time > seconds:
            return sorted(prompts)
        path, when = chr(1000 + number), time
        for _ in range(chooser.randint(1, 8)):
            path += "".join(chooser.choice("abcdef") for _ in range(chooser.randint(1, 5)))
            prompts.append((when, path))
            when += chooser.expovariate(1 / mean_gap)
            if when > seconds:
                break
    raise AssertionError


def estimate_of(
    capacity: int, traffic: list[tuple[float, str]], end: float, service: float = 0.0, **options: Any
) -> Estimate:
    story = Story(capacity, window_seconds=end / 2, slots=20, **options)
    due: list[tuple[float, Hashable]] = []
    for time, path in traffic:
        while due and due[0][0] <= time:
            story.monitor.release(*due.pop(0))
        key = story.admit(time, path, pinned=None)
        due.append((time + service, key))
    return story.estimate(end)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 4.0]), st.floats(1.3, 5.0))
def test_forgetting_what_is_older_than_the_survival_time_changes_nothing(
    seed: int, service: float, factor: float
) -> None:
    """Truncation invariance (docs/model.md#flow-form): a small index and one that never forgets predict the same."""
    capacity = 60
    traffic = regular_traffic(300, seed)
    grid = (20, 40, capacity)
    small = estimate_of(capacity, traffic, 300, service, grid=grid, index_blocks=int(3 * factor * capacity))
    large = estimate_of(capacity, traffic, 300, service, grid=grid, index_blocks=10**6)
    assert small.ceiling is not None
    assert large.ceiling is not None
    assert small.ceiling <= large.ceiling
    assert small.predicted[REUSE_TIME] == pytest.approx(large.predicted[REUSE_TIME], abs=0.004)
    assert small.curve == pytest.approx(large.curve, abs=0.004)
    assert small.shadow == pytest.approx(large.shadow, abs=1e-12)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_names_do_not_matter(seed: int) -> None:
    """Conversations under other labels, ids of blocks renamed: the same figures."""
    traffic = regular_traffic(200, seed)
    letters = {path[0] for _, path in traffic}
    shuffled = dict(zip(sorted(letters), random.Random(seed).sample(sorted(letters), len(letters)), strict=True))
    renamed = [(time, shuffled[path[0]] + path[1:].swapcase()) for time, path in traffic]
    assert vars(estimate_of(50, traffic, 200)) == vars(estimate_of(50, renamed, 200))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.25, 3.0]))
def test_faster_time_is_the_same_cache(seed: int, speed: float) -> None:
    """All times scaled: every ratio stays, T_C scales with them (a hair is lost to the bins of the gaps)."""
    traffic = regular_traffic(200, seed)
    normal = estimate_of(50, traffic, 200)
    scaled = estimate_of(50, [(time / speed, path) for time, path in traffic], 200 / speed)
    assert scaled.predicted[REUSE_TIME] == pytest.approx(normal.predicted[REUSE_TIME], abs=0.005)
    assert normal.characteristic_time is not None
    assert scaled.characteristic_time == pytest.approx(normal.characteristic_time / speed, rel=0.03)


def as_trace(traffic: list[tuple[float, str]], tail: int) -> Trace:
    return Trace(
        "test",
        B,
        [
            Prompt(time, len(path) * B + tail, [path[: depth + 1] for depth in range(len(path))])
            for time, path in traffic
        ],
    )


@pytest.mark.parametrize("unhashed", ["head", "tail"])
@pytest.mark.parametrize("capacity", [25, 60, 150, 400])
@pytest.mark.parametrize("tail", [1, 0])
def test_the_shadow_is_an_exact_lru(unhashed: Unhashed, capacity: int, tail: int) -> None:
    """One stack answers for all capacities what a pool of each size really hits."""
    monitor = Monitor(block_size=B, capacity_blocks=capacity, unhashed=unhashed, index_blocks=10**6)
    observed = simulate(
        as_trace(regular_traffic(600, 3), tail),
        BlockLRU(capacity, B, unhashed),
        capacity_blocks=capacity,
        observer=monitor,
    )
    monitor.refresh(600)
    assert observed.hit_blocks > 50
    # Whole-block prompts that repeat write duplicates, which the shadow does not keep.
    assert monitor.counters.shadow_hit_blocks == pytest.approx(observed.hit_blocks, abs=0 if tail else 5)


@pytest.mark.parametrize("unhashed", ["head", "tail"])
@pytest.mark.parametrize(("capacity", "service"), [(150, 0.0), (300, 0.0), (300, 8.0), (600, 20.0)])
def test_predictions_are_near_what_a_pool_hits(unhashed: Unhashed, capacity: int, service: float) -> None:
    """Within 2 points on one window of some 2,500 prompts, pinned blocks or not."""
    monitor = Monitor(
        block_size=B, capacity_blocks=capacity, unhashed=unhashed, index_blocks=10**5, window_seconds=10_000
    )
    observed = simulate(
        as_trace(regular_traffic(700, 5), tail=5),
        BlockLRU(capacity, B, unhashed),
        capacity_blocks=capacity,
        observer=monitor,
        service=exponential(service) if service else None,
    )
    estimate = monitor.refresh(700)
    assert estimate.observed == observed.hit_ratio
    assert estimate.predicted[REUSE_TIME] == pytest.approx(observed.hit_ratio, abs=0.02)
    assert estimate.divergence == pytest.approx((estimate.observed or 0) - (estimate.predicted[REUSE_TIME] or 0))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(10, 200), st.sampled_from(["head", "tail"]), st.integers(0, 15))
def test_every_prompt_block_has_one_outcome(seed: int, capacity: int, unhashed: Unhashed, tail: int) -> None:
    """Outcomes add up, and what an exact pool does leaves next to nothing unexplained."""
    monitor = Monitor(block_size=B, capacity_blocks=capacity, unhashed=unhashed, least_requests=1)
    trace = as_trace(regular_traffic(100, seed), tail)
    observed = simulate(trace, BlockLRU(capacity, B, unhashed), capacity_blocks=capacity, observer=monitor)
    monitor.refresh(100)
    counters = monitor.counters
    fates = dict(zip(OUTCOMES, counters.outcomes, strict=True))
    assert sum(fates.values()) == counters.prompt_blocks == observed.prompt_blocks
    assert min(fates.values()) >= 0
    assert fates["hit", "local"] == counters.hit_blocks == observed.hit_blocks
    assert fates["unexplained", "reset"] == 0
    assert fates["unexplained", "missing"] <= (0 if tail else 0.02 * observed.prompt_blocks)


@pytest.mark.parametrize(("name", "started", "lifetime"), [(None, 1, 3), ("conversation", 1, 3)])
def test_a_conversation_that_begins_below_one_block_counts_once(name: str | None, started: int, lifetime: int) -> None:
    # 60, 200 and 330 tokens at 128 a block: R = 1, 2, 3. The first prompt leaves no block to be found by.
    monitor = Monitor(block_size=128, capacity_blocks=100, least_requests=1, least_reuses=1)
    for turn, tokens in enumerate((60, 200, 330)):
        blocks = [("history", block) for block in range(tokens // 128)]
        monitor.admit(Access(float(turn), turn, tokens, blocks, 0, conversation=name))
        monitor.release(float(turn), turn)
    estimate = monitor.refresh(10.0)
    assert monitor.counters.conversations == started
    assert estimate.lifetime_blocks == lifetime
    assert estimate.turns == 3

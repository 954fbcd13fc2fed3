"""Algorithm 1 on the paper's own example, and against its mean-field limit."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from vllm_hitratio_plugin.model.interarrival import Exponential
from vllm_hitratio_plugin.model.mean_field import MeanField
from vllm_hitratio_plugin.replay.arrivals import poisson
from vllm_hitratio_plugin.replay.generator import Traffic, generate
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.pools.whole_content import WholeContentLRU
from vllm_hitratio_plugin.replay.sharegpt_like import sharegpt_like
from vllm_hitratio_plugin.replay.simulate import simulate
from vllm_hitratio_plugin.replay.trace import Prompt, Trace
from vllm_hitratio_plugin.replay.turns import Turn, conversation_sample, prompt_lengths


def turns_of(conversation: str, sizes: Sequence[int]) -> list[Prompt]:
    return [Prompt(float(turn), size, (conversation,) * size) for turn, size in enumerate(sizes)]


def test_the_papers_example_with_all_history_resident() -> None:
    """Appendix B.3: X = (2, 4, 3), Y = (2, 5) gives R = 2, 8, 16 and h = (0 + 2 + 8) / 26."""
    sizes = prompt_lengths([Turn(2, 2), Turn(4, 5), Turn(3, 0)])
    assert sizes == [2, 8, 16]
    observed = simulate(Trace("example", 1, turns_of("θ", sizes)), WholeContentLRU(16, 1), capacity_blocks=16)
    assert (observed.hit_blocks, observed.prompt_blocks) == (10, 26)


def test_contents_are_evicted_whole_and_in_order_of_use() -> None:
    pool = WholeContentLRU(10, 1)
    assert pool.admit(0, 4, ("a",)) == 0
    assert pool.admit(1, 4, ("b",)) == 0
    assert pool.admit(2, 5, ("a",)) == 4  # a grows to 5 and is the most recent
    assert pool.admit(3, 2, ("c",)) == 0  # 11 > 10: b goes, all of it
    assert pool.admit(4, 3, ("a",)) == 5  # the content is replaced, here by a smaller one
    assert pool.admit(5, 5, ("b",)) == 0
    assert pool.admit(6, 3, ("c",)) == 2
    assert pool.admit(7, 3, ("a",)) == 0


def test_a_content_larger_than_the_cache_empties_it() -> None:
    pool = WholeContentLRU(10, 1)
    pool.admit(0, 4, ("a",))
    assert pool.admit(1, 11, ("b",)) == 0
    assert pool.admit(2, 12, ("b",)) == 0
    assert pool.admit(3, 4, ("a",)) == 0


def test_the_practical_variant_loses_the_tail_block_and_keeps_its_space_taken() -> None:
    pool = WholeContentLRU(10, 1, practical=True)
    assert pool.admit(0, 4, ("a",)) == 0
    assert pool.admit(1, 6, ("a",)) == 3  # 3 + 3 new blocks; the tail of turn 1 stays behind: 7 taken
    assert pool.admit(2, 4, ("b",)) == 0  # 11: the old tail goes first
    assert pool.admit(3, 6, ("a",)) == 5
    pool.reset()
    assert pool.admit(4, 6, ("a",)) == 0


@pytest.mark.parametrize("practical", [False, True])
def test_at_a_large_capacity_it_comes_to_the_mean_field(practical: bool) -> None:
    """Theorems C.5 and C.6, over a time that is long compared with the longest conversation."""
    conversations = sharegpt_like(np.random.default_rng(5), 30_000)
    generated = generate(conversations, Traffic(poisson(2.64), exponential(90)), block_size=128, seed=5, warmup=8000)
    pool = WholeContentLRU(4000, 128, practical=practical)
    observed = simulate(generated.trace, pool, capacity_blocks=4000, window=generated.window).hit_ratio
    means = conversation_sample(generated.conversations, 128)
    workload = means.workload(2.64, hashable=practical)
    # What a returning turn writes besides Z_j: its predecessor's tail block, once more.
    rewritten = means.turns - 1 if practical else 0.0
    workload = replace(workload, lifetime_blocks=means.lifetime_blocks + rewritten)
    assert observed == pytest.approx(MeanField(workload, Exponential(90.0)).hit_ratio(4000), rel=0.02)

"""The block pools: exact small cases, the public reference values, and agreement with vLLM's own manager."""

import random
from collections.abc import Hashable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_hitratio_plugin.replay.formats.source import read_source
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.pools.pool import Pool, Unhashed
from vllm_hitratio_plugin.replay.simulate import simulate
from vllm_hitratio_plugin.replay.trace import Prompt, Trace

POLICIES: tuple[Unhashed, ...] = ("tail", "head")


def serve(pool: Pool, tokens: int, blocks: Sequence[Hashable]) -> int | None:
    hit = pool.admit("request", tokens, blocks)
    if hit is not None:
        pool.release("request")
    return hit


@pytest.mark.parametrize(
    ("block_size", "lengths", "hit_tokens"),
    [
        (528, (480, 552, 979), (0, 528, 528)),
        (3584, (2015, 8015, 32015, 47074), (0, 7168, 28672, 46592)),
        (32, (480,), (448,)),
    ],
)
def test_a_repeated_prompt_hits_all_but_its_last_token(
    block_size: int, lengths: tuple[int, ...], hit_tokens: tuple[int, ...]
) -> None:
    for tokens, expected in zip(lengths, hit_tokens, strict=True):
        pool = BlockLRU(100, block_size)
        blocks = range(-(-tokens // block_size))
        assert serve(pool, tokens, blocks) == 0
        assert serve(pool, tokens, blocks) == expected // block_size


def test_the_suffix_goes_before_its_prefix() -> None:
    pool = BlockLRU(5, 10)
    serve(pool, 31, ("a", "b", "c"))
    serve(pool, 25, ("x", "y"))  # needs 3: one empty block, the partly filled one, and one of a b c
    assert serve(pool, 31, ("a", "b", "c")) == 2


@pytest.mark.parametrize(("unhashed", "hit"), [("tail", 2), ("head", 3)])
def test_a_partly_filled_block_displaces_content_only_if_it_goes_to_the_tail(unhashed: Unhashed, hit: int) -> None:
    pool = BlockLRU(4, 10, unhashed)
    assert serve(pool, 30, ("a", "b", "c")) == 0
    for _ in range(2):
        serve(pool, 5, ())
    assert serve(pool, 31, ("a", "b", "c")) == hit


def test_the_duplicate_of_an_aligned_prompt_takes_a_block_and_serves_when_the_first_copy_is_gone() -> None:
    pool = BlockLRU(4, 10)
    serve(pool, 20, ("a", "b"))
    assert serve(pool, 20, ("a", "b")) == 1  # b is computed and stored again
    serve(pool, 20, ("x", "y"))  # takes the empty block and the older b
    assert serve(pool, 21, ("a", "b")) == 2


def test_pinned_blocks_are_neither_evicted_nor_lost() -> None:
    pool = BlockLRU(4, 10)
    assert pool.admit(1, 31, ("a", "b", "c")) == 0
    assert pool.in_use_blocks == 4
    assert pool.admit(2, 31, ("a", "b", "c")) is None  # three shared, but no room for the fourth
    assert pool.admit(2, 30, ("a", "b", "c")) is None  # c would be computed again
    assert not pool.reset()
    pool.release(1)
    assert pool.in_use_blocks == 0
    assert pool.admit(2, 31, ("a", "b", "c")) == 3
    assert pool.admit(3, 21, ("a", "b")) is None
    pool.release(2)
    assert pool.admit(2, 21, ("a", "b")) == 2
    assert pool.admit(3, 21, ("a", "b")) == 2
    assert pool.in_use_blocks == 4
    pool.release(2)
    assert pool.in_use_blocks == 3  # a and b are held by 3
    pool.release(3)
    assert pool.reset()
    assert serve(pool, 31, ("a", "b", "c")) == 0


@pytest.mark.parametrize(("capacity", "block_size"), [(0, 16), (16, 0)])
def test_nonsense_sizes_are_refused(capacity: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        BlockLRU(capacity, block_size)


MOONCAKE = {1000: 0.045, 2000: 0.054, 5000: 0.112, 10_000: 0.212, 20_000: 0.288, 50_000: 0.355, 100_000: 0.364}


def test_mooncake_reference_values(shared_traces: Path) -> None:
    trace = read_source(str(shared_traces / "mooncake" / "conversation_trace.jsonl.gz"))
    assert isinstance(trace, Trace)
    assert trace.block_size == 512
    for capacity, expected in (MOONCAKE | {1_000_000: 0.366}).items():
        observed = simulate(trace, BlockLRU(capacity, 512, "tail"), capacity_blocks=capacity)
        assert observed.hit_ratio == pytest.approx(expected, abs=0.001)
        assert observed.prompts == len(trace.prompts)


# Hits over full blocks in random order (docs/vllm.md#the-free-queue-by-version), made by vLLM 0.18 to 0.33.
RANDOM_ORDER = {
    400: (0.0663, 0.0695),
    1000: (0.1625, 0.1679),
    2000: (0.3082, 0.3210),
    4000: (0.5614, 0.5851),
    8000: (0.8654, 0.8835),
    12_000: (0.9172, 0.9172),
}


def interleaved_conversations() -> Trace:
    """200 conversations of 20 turns that grow from 10 to 48 blocks, in random order."""
    order = [conversation for conversation in range(200) for _ in range(20)]
    random.Random(3).shuffle(order)
    sizes = [10] * 200
    prompts = []
    for time, conversation in enumerate(order):
        first = conversation * 1000
        size = sizes[conversation]
        prompts.append(Prompt(float(time), size * 128 + 17, range(first, first + size + 1)))
        sizes[conversation] = min(size + 2, 50)
    return Trace("interleaved", 128, prompts)


@pytest.mark.parametrize("capacity", RANDOM_ORDER)
def test_values_measured_on_many_vllm_versions(capacity: int) -> None:
    trace = interleaved_conversations()
    full_blocks = sum(prompt.tokens // 128 for prompt in trace.prompts)
    for unhashed, expected in zip(POLICIES, RANDOM_ORDER[capacity], strict=True):
        observed = simulate(trace, BlockLRU(capacity, 128, unhashed), capacity_blocks=capacity)
        assert observed.hit_blocks / full_blocks == pytest.approx(expected, abs=5e-5)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60)), min_size=1, max_size=60),
    capacity=st.integers(6, 20),
)
@settings(deadline=None)
def test_more_capacity_never_hits_less_with_one_request_at_a_time(
    lengths: list[tuple[int, int]], capacity: int
) -> None:
    """LRU is a stack algorithm; without partly filled blocks and duplicates the pools are LRU."""
    small, large = BlockLRU(capacity, 10), BlockLRU(capacity + 1, 10)
    for family, blocks in lengths:
        tokens = min(blocks, 5) * 10 + 1
        ids = range(family * 100, family * 100 + min(blocks, 5))
        few, many = serve(small, tokens, ids), serve(large, tokens, ids)
        assert few is not None
        assert many is not None
        assert few <= many


@pytest.mark.vllm
@pytest.mark.parametrize("unhashed", POLICIES)
@pytest.mark.parametrize("capacity", [400, 2000, 8000])
def test_the_rewrite_is_vllm(unhashed: Unhashed, capacity: int) -> None:
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPool

    trace = interleaved_conversations()
    ours = simulate(trace, BlockLRU(capacity, 128, unhashed), capacity_blocks=capacity)
    theirs = simulate(trace, VllmPool(capacity, 128, unhashed), capacity_blocks=capacity)
    assert ours == theirs


@pytest.mark.vllm
@pytest.mark.parametrize("capacity", [1000, 10_000])
@pytest.mark.parametrize("unhashed", POLICIES)
def test_the_rewrite_is_vllm_on_mooncake(shared_traces: Path, capacity: int, unhashed: Unhashed) -> None:
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPool

    trace = read_source(str(shared_traces / "mooncake" / "conversation_trace.jsonl.gz"))
    assert isinstance(trace, Trace)
    ours = simulate(trace, BlockLRU(capacity, 512, unhashed), capacity_blocks=capacity)
    theirs = simulate(trace, VllmPool(capacity, 512, unhashed), capacity_blocks=capacity)
    assert ours == theirs


@pytest.mark.vllm
@pytest.mark.parametrize("unhashed", POLICIES)
def test_the_rewrite_is_vllm_under_pressure(unhashed: Unhashed) -> None:
    """Shared prefixes, forks, aligned duplicates, requests that hold their blocks and others that wait for them."""
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPool

    rng = random.Random(7)
    prompts = []
    for time in range(3000):
        family = rng.randrange(12)
        fork = rng.randrange(3)
        shared, own = rng.randrange(1, 6), rng.randrange(0, 6)
        blocks: list[tuple[int, ...]] = [(family, depth) for depth in range(shared)]
        blocks += [(family, shared, fork, depth) for depth in range(own)]
        tokens = len(blocks) * 16 - (rng.randrange(16) if rng.random() < 0.6 else 0)
        prompts.append(Prompt(float(time), tokens, [hash(block) for block in blocks]))
    trace = Trace("pressure", 16, prompts)
    service = exponential(12)
    ours = simulate(trace, BlockLRU(60, 16, unhashed), capacity_blocks=60, service=service, seed=1)
    theirs = simulate(trace, VllmPool(60, 16, unhashed), capacity_blocks=60, service=service, seed=1)
    assert ours == theirs
    assert ours.delayed > 100
    assert ours.mean_in_use_blocks is not None
    assert ours.mean_in_use_blocks > 20


@pytest.mark.vllm
def test_vllm_takes_any_block_id_and_resets() -> None:
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPool

    pool = VllmPool(10, 16)
    assert pool.unhashed == "head"
    assert serve(pool, 50, ("a", b"b", 3)) == 0
    assert serve(pool, 50, ("a", b"b", 3)) == 3
    assert serve(pool, 50, ("a", b"b", -3)) == 2
    assert pool.in_use_blocks == 0
    assert pool.reset()
    assert serve(pool, 50, ("a", b"b", 3)) == 0

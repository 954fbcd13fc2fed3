"""What the probe finds out of the running block pool, rather than from a version string."""

import pytest

from tests.support.real_manager import BLOCK_SIZE, make_manager
from vllm_hitratio_plugin.engine.probe import cache_facts, unhashed_policy

pytestmark = pytest.mark.vllm


def test_facts_of_a_full_attention_cache() -> None:
    facts = cache_facts(make_manager(500))
    assert (facts.capacity_blocks, facts.block_size, facts.caching) == (500, BLOCK_SIZE, True)
    assert (facts.not_modelled, facts.dropped_blocks) == (None, 0)
    assert facts.block_bytes is None  # this cache has no tensors


def test_unhashed_blocks_go_to_the_head_on_this_version() -> None:
    from vllm.v1.core.block_pool import BlockPool

    pool = make_manager(10).block_pool
    assert type(pool) is BlockPool
    assert unhashed_policy(pool) == "head"


def test_unhashed_blocks_go_to_the_tail_on_a_pool_of_the_old_order() -> None:
    """vLLM up to 0.23 appended every freed block."""
    from vllm.v1.core.block_pool import BlockPool

    class OldOrder(BlockPool):  # type: ignore[misc]
        def free_blocks(self, ordered_blocks, **_):  # type: ignore[no-untyped-def]
            blocks = list(ordered_blocks)
            for block in blocks:
                block.ref_cnt -= 1
            self.free_block_queue.append_n([block for block in blocks if block.ref_cnt == 0 and not block.is_null])

    manager = make_manager(10)
    manager.block_pool.__class__ = OldOrder
    assert unhashed_policy(manager.block_pool) == "tail"
    assert cache_facts(manager).unhashed == "tail"


def test_the_probe_leaves_the_running_pool_alone() -> None:
    manager = make_manager(10)
    before = [block.block_id for block in manager.block_pool.free_block_queue.get_all_free_blocks()]
    cache_facts(manager)
    after = manager.block_pool.free_block_queue.get_all_free_blocks()
    assert [block.block_id for block in after] == before
    assert all(block.block_hash is None for block in after)


def test_caching_that_is_off() -> None:
    facts = cache_facts(make_manager(10, caching=False))
    assert not facts.caching
    assert facts.capacity_blocks == 10


def test_several_groups_are_not_modelled() -> None:
    facts = cache_facts(make_manager(20, groups=2))
    assert facts.not_modelled is not None
    assert "2 groups" in facts.not_modelled


def test_speculative_decoding_drops_a_block() -> None:
    manager = make_manager(10)
    manager.use_eagle = True
    assert cache_facts(manager).dropped_blocks == 1


def test_a_sliding_window_is_not_modelled() -> None:
    import dataclasses

    import torch
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec, SlidingWindowSpec

    manager = make_manager(10)
    spec = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float16, sliding_window=64)
    manager.kv_cache_config = dataclasses.replace(
        manager.kv_cache_config, kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    facts = cache_facts(manager)
    assert facts.not_modelled is not None
    assert "SlidingWindowSpec" in facts.not_modelled

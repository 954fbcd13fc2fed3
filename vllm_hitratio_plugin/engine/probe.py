"""What the running engine's cache is: capacity, block size, bytes, policies, and whether the model covers it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CacheFacts:
    """The prefix cache of one engine."""

    capacity_blocks: int
    """N: blocks that can hold cached content; the null block can't."""
    block_size: int
    """Tokens per block, as prompts see it (times the decode-context-parallel ranks)."""
    block_bytes: int | None
    """Bytes of one block on one worker; None where the configuration does not say."""
    caching: bool
    """Whether prefix caching is on."""
    unhashed: str
    """Where a released block without a hash goes: "tail" or "head" (docs/model.md#unhashed-blocks)."""
    dropped_blocks: int
    """Blocks that every hit gives up (EAGLE, MTP)."""
    max_model_len: int | None
    """Tokens of the longest request allowed, its answer included (``max_model_len``); None where it does not say."""
    not_modelled: str | None
    """Why no prediction is made for this cache, in words; None where one is."""
    hash_size: int
    """Tokens per hash of a request's content: ``block_size``, or a divisor of it."""
    match_unit: int | None = None
    """Tokens per unit in which prompts hit, where that is less than a block; None: they hit in blocks."""


def cache_facts(manager: Any) -> CacheFacts:
    """Ask a ``KVCacheManager`` and its block pool."""
    config = manager.kv_cache_config
    pool = manager.block_pool
    spec = config.kv_cache_groups[0].kv_cache_spec
    managers = getattr(manager.coordinator, "single_type_managers", None)
    block_size = int(managers[0].block_size) if managers else int(spec.block_size)
    hash_size = int(getattr(pool, "hash_block_size", block_size))
    if len(config.kv_cache_groups) == 1 or block_size % hash_size:
        hash_size = block_size
    finer = hash_size < block_size and getattr(manager.coordinator, "enable_partial_hash_hits", False)
    return CacheFacts(
        capacity_blocks=int(pool.num_gpu_blocks) - 1,
        block_size=block_size,
        block_bytes=_block_bytes(config),
        caching=bool(manager.enable_caching),
        unhashed=unhashed_policy(pool) if manager.enable_caching else "head",
        dropped_blocks=1 if getattr(manager, "use_eagle", False) else 0,
        max_model_len=getattr(manager, "max_model_len", None),
        not_modelled=_not_modelled(config),
        hash_size=hash_size,
        match_unit=hash_size if finer else None,
    )


def unhashed_policy(pool: Any) -> str:
    """Free one hashed and one unhashed block of a scratch pool of the same class, and look which goes first.

    Returns "tail" where the unhashed one queues behind like any other (vLLM up to 0.23), "head" where it is taken
    again at once (from 0.24 on).
    """
    have = inspect.signature(type(pool).__init__).parameters
    wanted = {
        "num_gpu_blocks": 4,
        "enable_caching": True,
        "hash_block_size": getattr(pool, "hash_block_size", 16),
        "enable_kv_cache_events": False,
    }
    scratch = type(pool)(**{name: value for name, value in wanted.items() if name in have})
    hashed, unhashed = scratch.get_new_blocks(2)
    # The field itself: how it is set through a method has changed over the versions.
    hashed._block_hash = b"hitratio-probe\x00\x00\x00\x00"
    scratch.free_blocks([hashed])
    scratch.free_blocks([unhashed])
    order = [block.block_id for block in scratch.free_block_queue.get_all_free_blocks()]
    return "head" if order.index(unhashed.block_id) < order.index(hashed.block_id) else "tail"


def _block_bytes(config: Any) -> int | None:
    sizes = [int(tensor.size) for tensor in getattr(config, "kv_cache_tensors", [])]
    if sizes and config.num_blocks:
        return sum(sizes) // int(config.num_blocks)
    return None


def _not_modelled(config: Any) -> str | None:
    groups = config.kv_cache_groups
    if len(groups) != 1:
        return f"the cache has {len(groups)} groups of layers; one LRU of blocks does not describe it"
    kind = type(groups[0].kv_cache_spec).__name__
    names = {base.__name__ for base in type(groups[0].kv_cache_spec).__mro__}
    if kind == "UniformTypeKVCacheSpecs":
        kinds = [
            {base.__name__ for base in type(spec).__mro__} for spec in groups[0].kv_cache_spec.kv_cache_specs.values()
        ]
        names = set.intersection(*kinds) if kinds else set()
    if "FullAttentionSpec" not in names:
        return f"the cache is of kind {kind}; the model covers full attention only"
    return None

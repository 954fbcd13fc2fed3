"""vLLM's own KV cache manager and requests, driven as its scheduler drives them."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

BLOCK_SIZE = 16


def make_manager(capacity_blocks: int, *, caching: bool = True, block_size: int = BLOCK_SIZE, groups: int = 1) -> Any:
    """A manager of ``capacity_blocks`` usable blocks (one more is the null block)."""
    import torch
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    specs = [
        KVCacheGroupSpec(
            [f"layer{group}"],
            FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float16),
        )
        for group in range(groups)
    ]
    arguments = {
        "kv_cache_config": KVCacheConfig(num_blocks=capacity_blocks + 1, kv_cache_tensors=[], kv_cache_groups=specs),
        "max_model_len": 1 << 20,
        "scheduler_block_size": block_size,
        "hash_block_size": block_size,
        "enable_caching": caching,
        "log_stats": True,
    }
    known = inspect.signature(KVCacheManager.__init__).parameters
    return KVCacheManager(**{name: value for name, value in arguments.items() if name in known})


def chain(path: str) -> list[bytes]:
    """Chained digests, one a letter."""
    return [hashlib.sha256(path[: depth + 1].encode()).digest() for depth in range(len(path))]


def make_request(
    name: str, path: str, tail: int = 1, *, answer: int = 1, extra: dict[str, Any] | None = None, **more: Any
) -> Any:
    """A request whose prompt has the path's full blocks and ``tail`` tokens."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    request = Request(
        request_id=name,
        prompt_token_ids=[0] * (len(path) * BLOCK_SIZE + tail),
        sampling_params=SamplingParams(max_tokens=answer, extra_args=extra),
        pooling_params=None,
        arrival_time=0.0,
        **more,
    )
    request.block_hashes = chain(path)
    return request


def admit(manager: Any, request: Any, *, positional: bool = False, external: int = 0) -> int | None:
    """Look up and allocate, as for a waiting request; hit tokens, or None where it does not fit."""
    blocks, hit, *_ = manager.get_computed_blocks(request)
    new = 0 if external else request.num_tokens - hit  # nothing is computed before the load has ended
    if positional:  # vllm-ascend's dynamic batch scheduler
        allocated = manager.allocate_slots(request, new, hit, blocks)
    else:
        more = {"num_external_computed_tokens": external, "delay_cache_blocks": True} if external else {}
        allocated = manager.allocate_slots(
            request, new, num_new_computed_tokens=hit, new_computed_blocks=blocks, **more
        )
    if allocated is None:
        return None
    if hasattr(manager, "record_prefix_cache_stats"):
        manager.record_prefix_cache_stats(request, hit)
    request.num_computed_tokens = request.num_tokens
    return int(hit)


def serve(manager: Any, request: Any) -> int:
    """Admit and free."""
    hit = admit(manager, request)
    assert hit is not None
    manager.free(request)
    return hit

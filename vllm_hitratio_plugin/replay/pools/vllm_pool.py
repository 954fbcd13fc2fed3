"""vLLM's own KV cache manager, driven without a model: the judge of every other pool."""

import inspect
import os
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

from vllm_hitratio_plugin.replay.pools.pool import Unhashed

_LONGEST_PROMPT = 1 << 30  # tokens; vLLM wants a bound, the pool's capacity is the real one
_LARGEST_ID = 1 << 127
_MOST_BLOCKS = 20_000_000  # about 5 GB


class VllmPoolError(RuntimeError):
    """The installed vLLM, or its absence, does not allow what was asked for."""


class VllmPool:
    """``vllm.v1.core.kv_cache_manager.KVCacheManager`` with one full-attention group, in virtual time.

    Nothing of vLLM is rewritten: requests are real ``Request`` objects looked up, allocated and freed as the scheduler
    does (whole prompt in one chunk, no connector). Constructor arguments and return tuples differ between vLLM 0.18 and
    0.33 and are adapted to at run time.

    ``capacity_blocks`` N makes a pool of N + 1 blocks, for vLLM keeps one null block. ``unhashed=None`` is whatever the
    installed vLLM does; 'tail' on a vLLM that frees to the head appends what it would have prepended, which is what
    vLLM up to 0.23 did.

    Raises ``VllmPoolError`` where vLLM cannot be imported or cannot follow ``unhashed``.
    """

    def __init__(self, capacity_blocks: int, block_size: int, unhashed: Unhashed | None = None) -> None:
        self.capacity_blocks = capacity_blocks
        self.block_size = block_size
        if capacity_blocks > _MOST_BLOCKS:
            raise VllmPoolError(
                f"vLLM makes one object per block, so at most {_MOST_BLOCKS:,} blocks, not {capacity_blocks:,}"
            )
        vllm = _vllm()
        self._request_class = vllm.request_class
        self._manager = vllm.manager(capacity_blocks + 1, block_size)
        self._pool = self._manager.block_pool
        self._held: dict[Hashable, Any] = {}
        self._admissions = 0
        self._digests: dict[Hashable, bytes] = {}
        self.unhashed: Unhashed = self._probe()
        if unhashed is not None and unhashed != self.unhashed:
            if unhashed == "head":
                raise VllmPoolError(
                    "the installed vLLM frees unhashed blocks to the tail; 'head' needs vLLM 0.24 or newer"
                )
            queue = self._pool.free_block_queue
            queue.prepend_n = queue.append_n
            self.unhashed = unhashed

    @property
    def in_use_blocks(self) -> int:
        """Blocks in use by admitted, not yet released prompts."""
        free: int = self._pool.get_num_free_blocks()
        return self.capacity_blocks - free

    def admit(self, key: Hashable, tokens: int, blocks: Sequence[Hashable]) -> int | None:
        """Look a prompt up, then allocate and cache it; None where it does not fit (see ``Pool.admit``)."""
        self._admissions += 1
        full = blocks[: tokens // self.block_size]
        request = self._request_class(str(self._admissions), tokens, [self._digest(content) for content in full])
        found = self._manager.get_computed_blocks(request)
        hit: int = found[1]
        allocated = self._manager.allocate_slots(
            request, tokens - hit, num_new_computed_tokens=hit, new_computed_blocks=found[0]
        )
        if allocated is None:
            return None
        request.num_computed_tokens = tokens
        self._held[key] = request
        return hit // self.block_size

    def release(self, key: Hashable) -> None:
        """End the prompt: its blocks may be evicted from now on, the last one first."""
        self._manager.free(self._held.pop(key))

    def reset(self) -> bool:
        """Forget all cached content; False, with no effect, while blocks are in use."""
        done: bool = self._manager.reset_prefix_cache()
        return done

    def _digest(self, content: Hashable) -> bytes:
        if isinstance(content, int) and -_LARGEST_ID < content < _LARGEST_ID:
            return content.to_bytes(16, "big", signed=True)
        if isinstance(content, bytes):
            return content
        # vLLM hashes are bytes; any other id is numbered in order of appearance, in bytes of another length.
        return self._digests.setdefault(content, b"id" + len(self._digests).to_bytes(16, "big"))

    def _probe(self) -> Unhashed:
        """See where one unhashed block goes, rather than believe a version string."""
        queue = self._pool.free_block_queue
        first = queue.fake_free_list_head.next_free_block
        self.admit("probe", 1, ())
        self.release("probe")
        return "head" if queue.fake_free_list_head.next_free_block is first else "tail"


class _Vllm:
    """The parts of the installed vLLM that a pool needs."""

    def __init__(self) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        try:
            import torch
            from vllm.sampling_params import SamplingParams
            from vllm.v1.core.kv_cache_manager import KVCacheManager
            from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
            from vllm.v1.request import Request
        except Exception as error:  # a vLLM that does not match its torch fails in many ways
            raise VllmPoolError(
                f"the vLLM pool needs a working vLLM ({type(error).__name__}: {error}); the builtin pool needs none"
            ) from error

        def manager(num_blocks: int, block_size: int) -> Any:
            spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float16)
            config = KVCacheConfig(
                num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
            )
            arguments = {
                "kv_cache_config": config,
                "max_model_len": _LONGEST_PROMPT,
                "scheduler_block_size": block_size,
                "hash_block_size": block_size,
                "enable_caching": True,
            }
            known = inspect.signature(KVCacheManager.__init__).parameters
            return KVCacheManager(**{name: value for name, value in arguments.items() if name in known})

        template = vars(
            Request(
                request_id="template",
                prompt_token_ids=[0],
                sampling_params=SamplingParams(max_tokens=1),
                pooling_params=None,
                arrival_time=0.0,
            )
        )

        class LengthOnlyRequest(Request):  # type: ignore[misc]  # vLLM has no types here
            """A request whose tokens are only counted: the manager reads hashes and lengths, never tokens."""

            def __init__(self, request_id: str, tokens: int, block_hashes: list[bytes]) -> None:
                self.__dict__.update(template)
                self.request_id = request_id
                self.num_prompt_tokens = tokens
                self.block_hashes = block_hashes

            @property
            def num_tokens(self) -> int:
                """The prompt's length."""
                length: int = self.num_prompt_tokens
                return length

        self.manager = manager
        self.request_class = LengthOnlyRequest


@lru_cache(maxsize=1)
def _vllm() -> _Vllm:
    return _Vllm()

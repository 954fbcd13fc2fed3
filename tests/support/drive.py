"""vLLM's own scheduler and cache manager, whatever its version, driven without a model: tokens in, records out.

Runs in a process whose PYTHONPATH names the vLLM to be tested; nothing of vLLM is rewritten or mocked but the model
runner, whose answers are made up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

BLOCK = 32
EOS = 258


class Hasher:
    """vLLM's hashing of token ids into chained block ids."""

    def __init__(self, block_size: int) -> None:
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        function = get_hash_fn_by_name("sha256")
        init_none_hash(function)
        self.hash: Callable[[Any], list[Any]] = get_request_block_hasher(block_size, function)


def request(
    name: str,
    tokens: Sequence[int],
    hasher: Hasher,
    *,
    max_tokens: int = 1,
    extra: dict[str, Any] | None = None,
    sampling: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """A real vLLM request; ``extra`` are its ``vllm_xargs``."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    return Request(
        request_id=name,
        prompt_token_ids=list(tokens),
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True, extra_args=extra, **(sampling or {})),
        pooling_params=None,
        arrival_time=0.0,
        block_hasher=hasher.hash,
        **arguments,
    )


def fitting(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call it with those of the arguments that this version knows."""
    known = inspect.signature(function).parameters
    for base in getattr(function, "__mro__", ()):
        # A subclass that passes everything on knows what its parent knows.
        if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
            break
        known = inspect.signature(base.__init__).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})


def full_attention(block_size: int) -> Any:
    """The specification of a layer of full attention."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float16)


def cache_config(blocks: int, *groups: Any) -> Any:
    """A cache of that many blocks that can hold content, one group a specification."""
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

    return KVCacheConfig(
        num_blocks=blocks + 1,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec([f"layer.{index}"], spec) for index, spec in enumerate(groups)],
    )


def manager(
    blocks: int, block_size: int = BLOCK, *, longest: int = 1 << 20, config: Any = None, ranks: int = 1, **more: Any
) -> Any:
    """A real ``KVCacheManager`` alone; ``ranks`` of decode context parallelism share a block's tokens."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    return fitting(
        KVCacheManager,
        kv_cache_config=config or cache_config(blocks, full_attention(block_size)),
        max_model_len=longest,
        scheduler_block_size=block_size * ranks,
        hash_block_size=block_size * ranks,
        dcp_world_size=ranks,
        pcp_world_size=1,
        max_num_batched_tokens=longest,
        max_in_flight_tokens=longest,
        enable_caching=more.pop("enable_caching", True),
        log_stats=True,
        **more,
    )


def admit(manager: Any, request: Any, external: int = 0) -> int | None:
    """One admission as ``Scheduler.schedule()`` does it, the whole prompt at once; the hit in tokens, None if full."""
    if hasattr(manager, "new_step_starts"):
        manager.new_step_starts()
    found = manager.get_computed_blocks(request)  # two values up to 0.25, three from 0.26
    hit: int = found[1]
    tokens = request.num_tokens - hit - external
    done = manager.allocate_slots(
        request,
        tokens,
        num_new_computed_tokens=hit,
        new_computed_blocks=found[0],
        num_external_computed_tokens=external,
    )
    if done is None:
        return None
    request.num_computed_tokens = request.num_tokens
    return hit


def answer(manager: Any, request: Any, tokens: Sequence[int]) -> None:
    """Sample and compute these tokens, one a step; the last one is never computed."""
    for position, token in enumerate(tokens):
        request.append_output_token_ids(token)
        if position < len(tokens) - 1:
            assert manager.allocate_slots(request, 1) is not None
            request.num_computed_tokens += 1


class Engine:
    """A real scheduler over a made-up model runner; with ``overlap``, it schedules a step before the last is done."""

    def __init__(
        self, model: str, blocks: int, *, arguments: dict[str, Any] | None = None, overlap: bool = False
    ) -> None:
        from vllm.engine.arg_utils import EngineArgs

        options = {
            "load_format": "dummy",
            "enforce_eager": True,
            "block_size": BLOCK,
            "num_gpu_blocks_override": blocks + 1,
            "max_model_len": 4096,
            "max_num_batched_tokens": 4096,
            "max_num_seqs": 16,
            "enable_prefix_caching": True,
            "async_scheduling": False,
        }
        self.config = EngineArgs(model=model, **(options | (arguments or {}))).create_engine_config()
        if overlap:
            # The CPU platform refuses asynchronous scheduling; the scheduler itself needs no device.
            self.config.scheduler_config.async_scheduling = True
        self.block_size: int = self.config.cache_config.block_size
        self.config.cache_config.num_gpu_blocks = blocks + 1
        self.scheduler = self._scheduler(blocks)
        self.hasher = Hasher(self.block_size)
        self.sampled = 0
        self._overlap = overlap
        self._under_way: list[tuple[Any, list[str], list[list[int]]]] = []
        #: What a model runner would say of its connector, once.
        self.connector_output: Any = None

    def _scheduler(self, blocks: int) -> Any:
        from vllm.v1.structured_output import StructuredOutputManager

        return fitting(
            self.config.scheduler_config.get_scheduler_cls(),
            vllm_config=self.config,
            kv_cache_config=cache_config(blocks, full_attention(self.block_size)),
            structured_output_manager=StructuredOutputManager(self.config),
            block_size=self.block_size,
            hash_block_size=self.block_size,
            log_stats=True,
        )

    def add(self, name: str, tokens: Sequence[int], **arguments: Any) -> Any:
        """Queue a request and return it."""
        new = request(name, tokens, self.hasher, **arguments)
        self.scheduler.add_request(new)
        return new

    def step(self) -> Any:
        """One step of the engine; returns what was scheduled."""
        scheduled = self.scheduler.schedule()
        names = list(scheduled.num_scheduled_tokens)
        sampled: list[list[int]] = []
        for name in names:
            known = self.scheduler.requests[name]
            self.sampled += 1
            # A prompt of which only a chunk is done has no token yet.
            sampled.append([self.sampled % 256] if known.num_computed_tokens >= known.num_tokens else [])
        self._under_way.append((scheduled, names, sampled))
        if len(self._under_way) > self._overlap:
            self._update(*self._under_way.pop(0))
        return scheduled

    def _update(self, scheduled: Any, names: list[str], sampled: list[list[int]]) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        output, self.connector_output = self.connector_output, None
        self.scheduler.update_from_output(
            scheduled,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
                kv_connector_output=output,
            ),
        )

    def run(self, most: int = 20000) -> int:
        """Steps until nobody waits or runs; how many."""
        for count in range(most):
            if not (self.scheduler.waiting or self.scheduler.running):
                return count
            self.step()
        raise AssertionError(f"not done after {most} steps")

    @property
    def service(self) -> Any:
        """The plugin's service of this engine."""
        return self.scheduler.kv_cache_manager._hitratio_service

"""The hot path: three wrapped methods of one KV cache manager that only append to a queue."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable
from typing import Any

#: Kinds of records, the first field of each tuple.
ADMIT, RELEASE, RESET = range(3)

#: Records that may wait. Each holds on to a request, so the bound is one of memory: at 10,000 records a second (far
#: beyond what a scheduler does) it is reached when nobody reads them for a second and a half.
QUEUE_LIMIT = 16384


class Recorder:
    """Watches one ``KVCacheManager`` instance.

    The methods are replaced on the instance, not on the class: other managers in the process (CPU offload pools,
    vllm-ascend's stores) stay out of it, and class-level patches of others stay below ours.

    Records, in the order of the events:

    - ``(ADMIT, time, request, hit_tokens, external_tokens, free_blocks, preemptions, prompt_tokens)``: ``free_blocks``
      just before; several for one request that is preempted and comes back, or whose external load failed. The prompt
      of a streaming session gets longer later, without another lookup.
    - ``(RELEASE, time, request, computed_tokens)``: a preempted request has none left a moment later.
    - ``(RESET, time)``

    Cost on the engine's step: two appends a request, and a keyword test for each decode step's call; nothing grows with
    the prompt. The queue drops the oldest records beyond ``QUEUE_LIMIT``; :attr:`full` says that it may have.
    """

    def __init__(self, manager: Any) -> None:
        self.queue: deque[tuple[Any, ...]] = deque(maxlen=QUEUE_LIMIT)
        #: The first exception of our own in a wrapped method; recording stops with it.
        self.error: BaseException | None = None
        self._manager = manager
        self._wrapped: dict[str, Any] = {}
        self._replace("allocate_slots", _allocate_slots)
        self._replace("free", _free)
        if hasattr(manager, "pop_blocks_for_free"):
            # Frees that wait for the batch in flight: the blocks go back a step later, by another way.
            self._replace("pop_blocks_for_free", _free)
        self._replace("reset_prefix_cache", _reset_prefix_cache)

    @property
    def full(self) -> bool:
        """Whether records may have been dropped."""
        return len(self.queue) >= QUEUE_LIMIT

    def fail(self, error: BaseException) -> None:
        """Stop recording for good, leaving the manager as it was."""
        self.error = error
        self.close()

    def close(self) -> None:
        """Give the manager its own methods back, unless somebody wrapped ours since."""
        for name, wrapped in self._wrapped.items():
            if self._manager.__dict__.get(name) is wrapped:
                delattr(self._manager, name)
        self.queue.clear()

    def _replace(self, name: str, wrap: Callable[[Recorder, Any, Any], Any]) -> None:
        original = getattr(self._manager, name)
        wrapped = functools.wraps(original)(wrap(self, self._manager, original))
        self._wrapped[name] = wrapped
        setattr(self._manager, name, wrapped)


def _allocate_slots(recorder: Recorder, manager: Any, original: Any) -> Any:
    """A waiting request's call carries ``new_computed_blocks``; not None means admitted (VLLM.md section 0)."""
    append = recorder.queue.append
    clock = time.monotonic
    pool = manager.block_pool
    free_queue = pool.free_block_queue

    def allocate_slots(request: Any, num_new_tokens: int, *args: Any, **kwargs: Any) -> Any:
        if "new_computed_blocks" not in kwargs and len(args) < 2:
            return original(request, num_new_tokens, *args, **kwargs)
        free = computed = 0
        try:
            computed = request.num_computed_tokens
            free = free_queue.num_free_blocks
        except Exception as error:
            recorder.fail(error)
        result = original(request, num_new_tokens, *args, **kwargs)
        if result is not None and computed == 0:
            try:
                append(
                    (
                        ADMIT,
                        clock(),
                        request,
                        args[0] if args else kwargs["num_new_computed_tokens"],
                        kwargs.get("num_external_computed_tokens", 0),
                        free,
                        request.num_preemptions,
                        request.num_prompt_tokens,
                    )
                )
            except Exception as error:
                recorder.fail(error)
        return result

    return allocate_slots


def _free(recorder: Recorder, manager: Any, original: Any) -> Any:
    append = recorder.queue.append
    clock = time.monotonic

    def free(request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            append((RELEASE, clock(), request, request.num_computed_tokens))
        except Exception as error:
            recorder.fail(error)
        return original(request, *args, **kwargs)

    return free


def _reset_prefix_cache(recorder: Recorder, manager: Any, original: Any) -> Any:
    append = recorder.queue.append
    clock = time.monotonic

    def reset_prefix_cache(*args: Any, **kwargs: Any) -> Any:
        done = original(*args, **kwargs)
        try:
            if done:
                append((RESET, clock()))
        except Exception as error:
            recorder.fail(error)
        return done

    return reset_prefix_cache

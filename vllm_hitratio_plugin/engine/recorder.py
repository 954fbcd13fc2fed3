"""The hot path: three wrapped methods of one KV cache manager that only append to a queue."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

#: Records that may wait. Each keeps a request alive, so this bounds memory: at 10,000 records per second (far beyond
#: what a scheduler does) it is reached when the thread does not read them for a second and a half.
QUEUE_LIMIT = 16384


class Admission(NamedTuple):
    """A request got its blocks; several times for one that is preempted and comes back, or whose load failed."""

    time: float
    request: Any
    hit_tokens: int
    external_tokens: int
    computed_tokens: int
    """Of the prompt, after this step; less what a connector still loads."""
    free_blocks: int
    """Just before."""
    preemptions: int
    prompt_tokens: int
    """As it is now, with the answer so far where the request comes back: the prompt of a streaming session gets longer
    later, without another lookup."""


class Progress(NamedTuple):
    """A further part of an admitted request's prompt is computed by this step, or was loaded."""

    request: Any
    computed_tokens: int
    """Of the prompt, after this step."""
    free_blocks: int
    """Just before."""


class Release(NamedTuple):
    """A request gave its blocks back."""

    time: float
    request: Any
    computed_tokens: int
    """As it is now: a preempted request has none left a moment later."""
    free_blocks: int
    """Just before."""


class Reset(NamedTuple):
    """The engine dropped its prefix cache."""

    time: float


Record = Admission | Progress | Release | Reset


class Recorder:
    """Watches one ``KVCacheManager`` instance.

    The methods are replaced on the instance, not on the class: other managers in the process (CPU offload pools,
    vllm-ascend's stores) stay out of it, and class-level patches of others stay below ours.

    Records are queued in the order of the events. Cost on the engine's step: two appends per request, one for each
    further chunk of its prefill, and a comparison for each decode step's call; nothing grows with the prompt. The queue
    drops the oldest records beyond ``QUEUE_LIMIT``; :attr:`full` says that it may have.
    """

    def __init__(self, manager: Any) -> None:
        #: The kind of each record, then its fields. One plain tuple each: instances of a class of ours would make the
        #: garbage collector run more often, at the engine's expense; :meth:`take` gives the fields their names.
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

    @property
    def records(self) -> list[Record]:
        """What waits in the queue, oldest first."""
        return [_named(fields) for fields in tuple(self.queue)]

    def take(self) -> Record:
        """Take the oldest record off the queue; IndexError where it is empty."""
        return _named(self.queue.popleft())

    def fail(self, error: BaseException) -> None:
        """Stop recording for good, leaving the manager as it was."""
        self.error = error
        self.close()

    def close(self) -> None:
        """Give the manager its own methods back, unless ours were wrapped since."""
        for name, wrapped in self._wrapped.items():
            if self._manager.__dict__.get(name) is wrapped:
                delattr(self._manager, name)
        self.queue.clear()

    def _replace(self, name: str, wrap: Callable[[Recorder, Any, Any], Any]) -> None:
        original = getattr(self._manager, name)
        wrapped = functools.wraps(original)(wrap(self, self._manager, original))
        self._wrapped[name] = wrapped
        setattr(self._manager, name, wrapped)


def _named(fields: tuple[Any, ...]) -> Record:
    record: Record = tuple.__new__(fields[0], fields[1:])
    return record


def _allocate_slots(recorder: Recorder, manager: Any, original: Any) -> Any:
    """A waiting request's call carries ``new_computed_blocks``; a result means admitted, or computed further.

    See docs/vllm.md#where-the-plugin-hooks-in.
    """
    append = recorder.queue.append
    clock = time.monotonic
    pool = manager.block_pool
    free_queue = pool.free_block_queue

    def allocate_slots(
        request: Any, num_new_tokens: int, *args: Any, num_lookahead_tokens: int = 0, **kwargs: Any
    ) -> Any:
        # The call for a running request has this one keyword. Through kwargs, a decode step would take twice as long.
        waiting = (kwargs or args) and ("new_computed_blocks" in kwargs or len(args) >= 2)
        computed = free = 0
        try:
            computed = request.num_computed_tokens
            decodes = not waiting and computed >= request.num_prompt_tokens
            if not decodes:
                free = free_queue.num_free_blocks
        except Exception as error:
            recorder.fail(error)
            decodes = True
        if decodes and not args and not kwargs:
            return original(request, num_new_tokens, num_lookahead_tokens=num_lookahead_tokens)
        if num_lookahead_tokens:
            kwargs["num_lookahead_tokens"] = num_lookahead_tokens
        if decodes:
            return original(request, num_new_tokens, *args, **kwargs)
        result = original(request, num_new_tokens, *args, **kwargs)
        if result is None:
            return None
        try:
            if not waiting or computed:
                append((Progress, request, computed + num_new_tokens, free))
            else:
                hit = args[0] if args else kwargs["num_new_computed_tokens"]
                external = kwargs.get("num_external_computed_tokens", 0)
                preemptions = request.num_preemptions
                append(
                    (
                        Admission,
                        clock(),
                        request,
                        hit,
                        external,
                        hit if kwargs.get("delay_cache_blocks") else hit + external + num_new_tokens,
                        free,
                        preemptions,
                        request.num_tokens if preemptions else request.num_prompt_tokens,
                    )
                )
        except Exception as error:
            recorder.fail(error)
        return result

    return allocate_slots


def _free(recorder: Recorder, manager: Any, original: Any) -> Any:
    append = recorder.queue.append
    clock = time.monotonic
    free_queue = manager.block_pool.free_block_queue

    def free(request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            append((Release, clock(), request, request.num_computed_tokens, free_queue.num_free_blocks))
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
                append((Reset, clock()))
        except Exception as error:
            recorder.fail(error)
        return done

    return reset_prefix_cache

"""A trace through a pool in virtual time, observed by a monitor."""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.replay.law import Law
from vllm_hitratio_plugin.replay.pools.pool import Pool, block_count
from vllm_hitratio_plugin.replay.trace import Prompt, Trace

_TICK = 500  # prompts


class Observer(Protocol):
    """What a simulation tells a monitor: the same two events that the live hook tells."""

    def admit(self, access: Access) -> object:
        """A prompt got its blocks."""
        ...

    def release(self, time: float, key: Hashable) -> object:
        """A prompt gave its blocks back."""
        ...


@dataclass(frozen=True)
class Observed:
    """What a pool did with the prompts admitted within the measurement window."""

    prompts: int
    prompt_blocks: int
    """Σ R over them, partly filled blocks included."""

    hit_blocks: int
    mean_in_use_blocks: float | None
    """Blocks in use by other prompts when one was admitted, averaged over admissions; None without admissions."""

    delayed: int
    """Prompts of them that had to wait for blocks."""

    rejected: int
    """Prompts with more blocks than the pool, whenever they came: never admitted, counted nowhere else."""

    waiting: int
    """Prompts that still waited at the end."""

    @property
    def hit_ratio(self) -> float | None:
        """h = hit blocks / prompt blocks (6); None where there was no prompt."""
        return self.hit_blocks / self.prompt_blocks if self.prompt_blocks else None


def simulate(
    trace: Trace,
    pool: Pool,
    *,
    capacity_blocks: int,
    observer: Observer | None = None,
    service: Law | None = None,
    window: tuple[float, float] | None = None,
    seed: int = 0,
    tick: Callable[[int], object] | None = None,
) -> Observed:
    """Admit every prompt at its time, hold its blocks for its service time, and release it.

    Prompts that do not fit wait, first come first served, and are tried again at every release. Releases come before
    admissions at the same moment. ``service=None`` releases at once: one request at a time. Service times belong
    to the prompts (the n-th prompt always gets the same), so two pools meet the same load.

    ``window`` [t0, t1] in seconds, by time of admission; None measures everything. The simulation ends at t1, or
    with the last prompt of the trace: what happens later would be measured with arrivals stopped. ``tick`` is told, now
    and then, how many more prompts were done.
    """
    block_size = trace.block_size
    first, last = window if window is not None else (-np.inf, np.inf)
    holds = service.draw(np.random.default_rng([seed, 2]), len(trace.prompts)) if service is not None else None
    releases: list[tuple[float, int]] = []
    queue: deque[tuple[int, Prompt]] = deque()
    measured = prompt_blocks = hit_blocks = in_use_sum = delayed = rejected = 0

    def admit(time: float, key: int, prompt: Prompt) -> bool:
        nonlocal measured, prompt_blocks, hit_blocks, in_use_sum, delayed
        in_use = pool.in_use_blocks
        hit = pool.admit(key, prompt.tokens, prompt.blocks)
        if hit is None:
            return False
        if first <= time <= last:
            measured += 1
            prompt_blocks += block_count(prompt.tokens, block_size)
            hit_blocks += hit
            in_use_sum += in_use
            delayed += time > prompt.time
        if observer is not None:
            observer.admit(
                Access(
                    time=time,
                    key=key,
                    tokens=prompt.tokens,
                    blocks=prompt.blocks,
                    hit_tokens=hit * block_size,
                    in_use_blocks=in_use,
                    conversation=prompt.conversation,
                )
            )
        if holds is None:
            release(time, key)
        else:
            heappush(releases, (time + holds[key], key))
        return True

    def release(time: float, key: int) -> None:
        pool.release(key)
        if observer is not None:
            observer.release(time, key)

    def release_until(now: float) -> None:
        while releases and releases[0][0] <= now:
            time, key = heappop(releases)
            release(time, key)
            while queue and admit(time, *queue[0]):
                queue.popleft()

    for key, prompt in enumerate(trace.prompts):
        if prompt.time > last:
            break
        if tick is not None and key % _TICK == 0 and key:
            tick(_TICK)
        release_until(prompt.time)
        if block_count(prompt.tokens, block_size) > capacity_blocks:
            rejected += 1
        elif queue or not admit(prompt.time, key, prompt):
            queue.append((key, prompt))
    if np.isfinite(last):
        release_until(last)
    return Observed(
        prompts=measured,
        prompt_blocks=prompt_blocks,
        hit_blocks=hit_blocks,
        mean_in_use_blocks=in_use_sum / measured if measured else None,
        delayed=delayed,
        rejected=rejected,
        waiting=len(queue),
    )

"""Random traffic through vLLM's own scheduler, step by step, and what the index makes of it.

Prompts come in bursts and share prefixes; prefills are chunked; requests are preempted, aborted at any moment, sent
again; the cache is reset. Every admission's hit is compared with what the exact LRU of the same capacity has.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.support import drive
from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.engine.probe import cache_facts
from vllm_hitratio_plugin.engine.recorder import Recorder
from vllm_hitratio_plugin.engine.requests import tell
from vllm_hitratio_plugin.index.match import Match
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.snapshot import OUTCOMES


@dataclass
class Comparison:
    """What was found."""

    prompts: int = 0
    admissions: int = 0
    hit_blocks: int = 0
    shadow_blocks: int = 0
    different: list[str] = field(default_factory=list)
    """Admissions whose hits are not the exact LRU's."""
    events: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, int] = field(default_factory=dict)


class Watched:
    """A monitor that follows a scheduler, and compares admission by admission."""

    def __init__(self, manager: Any) -> None:
        self.facts = cache_facts(manager)
        self.recorder = Recorder(manager)
        self.monitor = Monitor(
            block_size=self.facts.block_size,
            capacity_blocks=self.facts.capacity_blocks,
            unhashed=self.facts.unhashed,
            dropped_blocks=self.facts.dropped_blocks,
        )
        self.found = Comparison()
        self._admissions = self.monitor._admissions
        self._admit = self._admissions.admit
        self._admissions.admit = self._compared  # type: ignore[method-assign]

    def follow(self) -> None:
        """Read the records of the step that is over."""
        while self.recorder.queue:
            tell(self.monitor, self.recorder.take(), self.facts)
        assert self.recorder.error is None

    def _compared(self, access: Access) -> Match | None:
        match = self._admit(access)
        if match is None or not access.counted:
            return match
        assert access.hit_tokens is not None
        hit = access.hit_tokens // self.facts.block_size
        room = self.facts.capacity_blocks - match.in_use_blocks - match.empty_blocks
        shadow = sum(
            length if distance < 0 else min(max(room - distance, 0), length)
            for distance, length in zip(match.distances, match.lengths, strict=True)
        )
        found = self.found
        found.admissions += 1
        found.hit_blocks += hit
        found.shadow_blocks += shadow
        if hit != shadow:
            found.different.append(f"{access.key}: hit {hit}, exact LRU {shadow}, of {len(access.blocks)}")
        return match


@dataclass(frozen=True)
class Schedule:
    """What may happen."""

    blocks: int = 120
    budget: int = 512
    threshold: int = 0
    asynchronous: bool = False
    prompts: int = 2000
    aborts: float = 0.05
    resets: float = 0.002
    answers: int = 1
    longest: int = 1500


def run(model: str, seed: int, schedule: Schedule) -> Comparison:
    """Serve ``schedule.prompts`` random prompts of some conversations, and compare."""
    from vllm.v1.request import RequestStatus

    arguments: dict[str, Any] = {
        "max_num_batched_tokens": schedule.budget,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": schedule.threshold,
        "async_scheduling": schedule.asynchronous,
    }
    arguments["max_model_len"] = max(schedule.longest + schedule.answers + 1, 4096)
    engine = drive.Engine(model, schedule.blocks, arguments=arguments)
    scheduler = engine.scheduler
    watched = Watched(scheduler.kv_cache_manager)
    rng = random.Random(seed)
    preambles = [[rng.randrange(256) for _ in range(size)] for size in (0, 40, 200)]
    histories: list[list[int]] = [[*rng.choice(preambles), rng.randrange(256)] for _ in range(12)]
    alive: dict[str, Any] = {}
    found = watched.found
    while found.prompts < schedule.prompts or alive:
        if found.prompts < schedule.prompts and rng.random() < 0.4:
            number = rng.randrange(len(histories))
            history = histories[number]
            if rng.random() < 0.7:
                history += [rng.randrange(256) for _ in range(rng.randrange(1, 250))]
            if len(history) > schedule.longest or rng.random() < 0.05:
                history = histories[number] = [*rng.choice(preambles), rng.randrange(256)]
            for _ in range(rng.choice((1, 1, 1, 2, 5))):
                name = f"r{found.prompts}"
                found.prompts += 1
                skips = {"prompt_logprobs": 1} if rng.random() < 0.02 else None
                alive[name] = engine.add(
                    name, history, max_tokens=rng.randint(1, schedule.answers), sampling=skips
                )
        if alive and rng.random() < schedule.aborts:
            name = rng.choice(list(alive))
            found.events["aborted"] += 1
            scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        if rng.random() < schedule.resets:
            found.events["reset"] += bool(scheduler.reset_prefix_cache(reset_running_requests=rng.random() < 0.5))
        if scheduler.waiting or scheduler.running:
            engine.step()
        watched.follow()
        for name in [name for name, request in alive.items() if request.is_finished()]:
            found.events["preempted"] += alive[name].num_preemptions
            del alive[name]
    watched.monitor.refresh(1e9)
    counters = watched.monitor.counters
    found.outcomes = dict(zip(map("/".join, OUTCOMES), counters.outcomes, strict=True))
    return found

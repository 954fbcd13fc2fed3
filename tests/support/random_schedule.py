"""Random traffic through vLLM's own scheduler, step by step, and what the index makes of it.

Prompts come in bursts and share prefixes; prefills are chunked; requests are preempted, aborted at any moment, sent
again; some skip the cache; a store loads some, at once or later; the cache is reset. Every admission's hit is compared
with what the exact LRU of the same capacity has, and the blocks in use after every step with the pool's.
"""

from __future__ import annotations

import os
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

    def __init__(self, manager: Any, answers: int, *, loads: bool = False) -> None:
        self._answers = answers
        # A load that has ended while the pool is full: the index learns of it later, and may take another copy for the
        # first (docs/model.md#copies-and-content-in-flight).
        self._exact = not loads
        self._free_queue = manager.block_pool.free_block_queue
        self.facts = cache_facts(manager)
        self.recorder = Recorder(manager)
        self.monitor = Monitor(
            block_size=self.facts.block_size,
            capacity_blocks=self.facts.capacity_blocks,
            unhashed=self.facts.unhashed,
            dropped_blocks=self.facts.dropped_blocks,
        )
        self.found = Comparison()
        #: When the last request was admitted, s.
        self.last_time: float | None = None
        self._admissions = self.monitor._admissions
        self._admit = self._admissions.admit
        self._admissions.admit = self._compared  # type: ignore[method-assign]

    def follow(self) -> None:
        """Read the records of the step that is over."""
        while self.recorder.queue:
            tell(self.monitor, self.recorder.take(), self.facts)
        assert self.recorder.error is None
        known = self._admissions.tree.in_use_blocks + self._admissions._unhashed_in_use
        growing = self.facts.capacity_blocks - self._free_queue.num_free_blocks - known
        # Answers under way take blocks between two records; nothing else may.
        assert not self._exact or 0 <= growing <= self.monitor.running * (1 + self._answers // self.facts.block_size)

    def _compared(self, access: Access) -> Match | None:
        match = self._admit(access)
        self.last_time = access.time
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
    """``max_num_batched_tokens``."""
    threshold: int = 0
    """``long_prefill_token_threshold``."""
    asynchronous: bool = False
    prompts: int = 2000
    aborts: float = 0.05
    """Per step."""
    resets: float = 0.002
    """Per step."""
    answers: int = 1
    """Tokens of the longest answer."""
    longest: int = 1500
    """Tokens of the longest prompt."""
    connector: bool = False
    """A store of KV cache loads some prompts."""


SCHEDULES = {
    "budget 512": Schedule(),
    "budget 2048": Schedule(blocks=200, budget=2048, answers=5, aborts=0.2),
    "budget 8192": Schedule(budget=8192, answers=20),
    "threshold 64, little memory": Schedule(threshold=64, blocks=70),
    "threshold 128, long answers": Schedule(threshold=128, answers=60),
    "asynchronous": Schedule(threshold=128, answers=100, asynchronous=True),
    "loads from a store": Schedule(budget=2048, blocks=200, answers=5, aborts=0.2, connector=True),
    "loads, asynchronous": Schedule(budget=2048, answers=50, asynchronous=True, connector=True),
    "prompts of 50,000 tokens": Schedule(budget=2048, threshold=1000, blocks=4000, longest=50_000, prompts=400),
}


def run(model: str, seed: int, schedule: Schedule) -> Comparison:
    """Serve ``schedule.prompts`` random prompts of some conversations, and compare."""
    from vllm.v1.request import RequestStatus

    arguments: dict[str, Any] = {
        "max_num_batched_tokens": schedule.budget,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": schedule.threshold,
        "async_scheduling": schedule.asynchronous,
    }
    if schedule.connector:
        from vllm.config import KVTransferConfig

        arguments["kv_transfer_config"] = KVTransferConfig(
            kv_connector="SlowStore", kv_connector_module_path="tests.support.slow_store", kv_role="kv_both"
        )
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    arguments["max_model_len"] = max(schedule.longest + schedule.answers + 1, 4096)
    engine = drive.Engine(model, schedule.blocks, arguments=arguments, overlap=schedule.asynchronous)
    scheduler = engine.scheduler
    service = getattr(scheduler.kv_cache_manager, "_hitratio_service", None)
    if service is not None:  # where the plugin is enabled: it marks the requests that it has counted
        service.stop()
    watched = Watched(scheduler.kv_cache_manager, schedule.answers, loads=schedule.connector)
    rng = random.Random(seed)
    preambles = [[rng.randrange(256) for _ in range(size)] for size in (0, 40, 200)]
    histories: list[list[int]] = [[*rng.choice(preambles), rng.randrange(256)] for _ in range(12)]
    alive: dict[str, Any] = {}
    found = watched.found
    # Loads of requests that were aborted end later.
    while found.prompts < schedule.prompts or alive or watched.monitor.running:
        if found.prompts < schedule.prompts and rng.random() < 0.4:
            number = rng.randrange(len(histories))
            history = histories[number]
            if rng.random() < 0.7:
                history += [rng.randrange(256) for _ in range(rng.randrange(1, schedule.longest // 6))]
            if len(history) > schedule.longest or rng.random() < 0.05:
                history = histories[number] = [*rng.choice(preambles), rng.randrange(256)]
            for _ in range(rng.choice((1, 1, 1, 2, 5))):
                name = f"r{found.prompts}"
                found.prompts += 1
                skips = {"prompt_logprobs": 1} if rng.random() < 0.02 else None
                alive[name] = engine.add(name, history, max_tokens=rng.randint(1, schedule.answers), sampling=skips)
        if alive and rng.random() < schedule.aborts:
            name = rng.choice(list(alive))
            found.events["aborted"] += 1
            scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        if rng.random() < schedule.resets:
            running = not schedule.connector and rng.random() < 0.5  # vLLM does not wait for loads under way
            found.events["reset"] += bool(scheduler.reset_prefix_cache(reset_running_requests=running))
        if alive or watched.monitor.running:
            if schedule.connector:
                from vllm.v1.outputs import KVConnectorOutput

                engine.connector_output = KVConnectorOutput(finished_recving=scheduler.connector.arrived())
            engine.step()
        watched.follow()
        for name in [name for name, request in alive.items() if request.is_finished()]:
            request = alive.pop(name)
            found.events["preempted"] += request.num_preemptions
            history = rng.choice(histories)
            if request.prompt_token_ids == history and rng.random() < 0.5:
                history += request.output_token_ids
    watched.monitor.refresh(1e9)
    counters = watched.monitor.counters
    found.outcomes = dict(zip(map("/".join, OUTCOMES), counters.outcomes, strict=True))
    assert sum(found.outcomes.values()) == counters.prompt_blocks
    assert watched.monitor.running == 0
    return found

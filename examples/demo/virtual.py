"""The same trial without vLLM: the same load in virtual time, through the built-in pool, with the same monitor."""

from collections.abc import Hashable
from dataclasses import replace

from examples.demo.outcome import Look, Outcome, Sample, window_look
from examples.demo.settings import BLOCK_SIZE, Settings
from examples.demo.workload import Timetable, identifier
from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.simulate import simulate

#: Mean time that a prompt holds its blocks: about what a prefill takes on the real server.
SERVICE_SECONDS = 0.02


def run_virtual_trial(settings: Settings, timetable: Timetable, capacity_blocks: int) -> Outcome:
    """Run the load against a pool of `capacity_blocks`, in a few seconds."""
    named = [prompt._replace(conversation=identifier(str(prompt.conversation))) for prompt in timetable.trace.prompts]
    monitor = Monitor(
        block_size=BLOCK_SIZE,
        capacity_blocks=capacity_blocks,
        window_seconds=settings.measured_seconds,
        target=settings.target,
    )
    watch = _Watch(monitor, settings.interval_seconds)
    simulate(
        replace(timetable.trace, prompts=named),
        BlockLRU(capacity_blocks, BLOCK_SIZE),
        capacity_blocks=capacity_blocks,
        observer=watch,
        service=exponential(SERVICE_SECONDS),
        seed=settings.seed,
    )
    watch.look(timetable.seconds)
    window = window_look(watch.looks, settings.end_seconds)
    assert window is not None
    seconds = window.estimate.window_seconds
    requests = timetable.planned(window.begin, window.time)
    conversations = len(timetable.started(window.begin, window.time))
    return Outcome(
        capacity_blocks=capacity_blocks,
        sample=Sample(seconds, requests, conversations, requests / seconds, requests / seconds),
        window=window,
        looks=watch.looks,
        final=monitor.counters,
    )


class _Watch:
    """Passes the pool's events on to the monitor, and refreshes it at regular times."""

    def __init__(self, monitor: Monitor, period: float) -> None:
        self.monitor, self.period = monitor, period
        self.looks: list[Look] = []

    def admit(self, access: Access) -> None:
        while access.time >= (len(self.looks) + 1) * self.period:
            self.look((len(self.looks) + 1) * self.period)
        self.monitor.admit(access)

    def release(self, time: float, key: Hashable) -> None:
        self.monitor.release(time, key)

    def look(self, time: float) -> None:
        estimate = self.monitor.refresh(time)
        self.looks.append(Look(time, estimate, self.monitor.counters, self.monitor.sums.prompt_blocks))

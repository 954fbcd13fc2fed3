"""The same trial without vLLM: the same load in virtual time, through the built-in pool, under the same monitor."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import ceil

from examples.demo.outcome import ESTIMATORS, Outcome, Point, Sample
from examples.demo.settings import BLOCK_SIZE, Settings
from examples.demo.workload import Timetable, identifier
from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.simulate import simulate
from vllm_hitratio_plugin.snapshot import Estimate

SERVICE_SECONDS = 0.02
"""Mean time that a prompt holds its blocks: about what a prefill takes on the real server."""


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
    end = settings.warmup_seconds + settings.measured_seconds
    estimate = next(each for each in watch.estimates if each.time >= end)
    recommended = estimate.recommended_blocks
    return Outcome(
        capacity_blocks=capacity_blocks,
        sample=_sample(timetable, end - estimate.window_seconds, end),
        observed=estimate.observed,
        predicted={each: estimate.predicted[each] for each in ESTIMATORS},
        predicted_stderr={each: estimate.predicted_stderr[each] for each in ESTIMATORS},
        gap=estimate.divergence,
        divergence_stderr=estimate.divergence_stderr,
        ceiling=estimate.ceiling,
        characteristic_time=estimate.characteristic_time,
        arrival_rate=estimate.arrival_rate,
        history_workload=estimate.history_workload,
        reusable_workload=estimate.reusable_workload,
        lifetime_blocks=estimate.lifetime_blocks,
        turns=estimate.turns,
        target=settings.target,
        target_reachable=estimate.reachable,
        recommended_blocks=None if recommended is None else ceil(recommended),
        recommended_bytes=None,
        curve=dict(estimate.curve),
        plugin_hit_tokens=monitor.counters.hit_tokens,
        plugin_prompt_tokens=monitor.counters.prompt_tokens,
        engine_hit_tokens=None,
        engine_prompt_tokens=None,
        exporter_agrees=None,
        degraded=[],
        series=watch.points,
    )


@dataclass
class _Watch:
    """Hands the pool's events to the monitor, and looks at it at regular times."""

    monitor: Monitor
    period: float
    estimates: list[Estimate] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    looks: int = 1

    def admit(self, access: Access) -> None:
        while access.time >= self.looks * self.period:
            self.look(self.looks * self.period)
            self.looks += 1
        self.monitor.admit(access)

    def release(self, time: float, key: Hashable) -> None:
        self.monitor.release(time, key)

    def look(self, time: float) -> None:
        estimate = self.monitor.refresh(time)
        counters = self.monitor.counters
        self.estimates.append(estimate)
        self.points.append(
            Point(
                time=time,
                observed=estimate.observed,
                predicted=estimate.predicted[ESTIMATORS[0]],
                divergence_stderr=estimate.divergence_stderr,
                prompt_blocks=counters.prompt_blocks,
                hit_blocks=counters.hit_blocks,
                predicted_hit_blocks=counters.predicted_hit_blocks[ESTIMATORS[0]],
            )
        )


def _sample(timetable: Timetable, begin: float, end: float) -> Sample:
    requests = sum(begin <= prompt.time < end for prompt in timetable.trace.prompts)
    return Sample(
        seconds=end - begin,
        requests=requests,
        conversations=len(timetable.started(begin, end)),
        requests_per_second=requests / (end - begin),
        planned_per_second=requests / (end - begin),
        failures=0,
        first_failure=None,
        late=0,
        latency_p50=None,
        latency_p99=None,
    )

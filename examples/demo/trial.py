"""One trial on a real vLLM: start a server, drive the load, read what the plugin says, stop the server."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from examples.demo import metrics
from examples.demo.errors import DemoError
from examples.demo.load import Sent, Tally, drive
from examples.demo.metrics import Scrape
from examples.demo.outcome import ESTIMATORS, Outcome, Point, Sample
from examples.demo.progress import Progress
from examples.demo.server import Server, ServerError, serve
from examples.demo.settings import Settings
from examples.demo.workload import Timetable

PATIENCE = 20.0
"""Seconds of load after which the plugin must say something, be it that there is not enough data yet."""

SETTLE_TIMEOUT = 30.0
"""Seconds for the plugin's counters to show the last request."""


class TrialError(DemoError):
    """The trial gave no figures; the message is one sentence."""


def plugin_options(settings: Settings) -> list[str]:
    """What a user adds to ``vllm serve``."""
    return [
        *("--plugin", "hitratio", "--hitratio-target", f"{settings.target:g}"),
        *("--hitratio-window", f"{settings.measured_seconds:g}"),
        *("--hitratio-interval", f"{settings.interval_seconds:g}"),
    ]


def run_trial(settings: Settings, timetable: Timetable, model: Path, capacity_blocks: int, name: str) -> Outcome:
    """Run the load against a server of `capacity_blocks`; raises :class:`TrialError` or ``ServerError``."""
    with serve(
        model,
        capacity_blocks=capacity_blocks,
        log=settings.output / f"{name}.log",
        plugin_options=plugin_options(settings),
        hitratio_port=settings.hitratio_port,
    ) as server:
        watch = _Watch(settings, server)
        tally = asyncio.run(drive(timetable, server.url, server.model, watch, settings.interval_seconds))
        watch.finish(tally)
        settled = _settled(server)
        return _outcome(settings, server, timetable, tally, watch, settled)


@dataclass
class _Look:
    """One scrape."""

    time: float
    """Seconds from the start of the load."""

    fitted: float | None
    """When the plugin fitted what it says, on the same clock."""

    scrape: Scrape


@dataclass
class _Watch:
    """Looks at /metrics during the load and keeps what it sees."""

    settings: Settings
    server: Server
    looks: list[_Look] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)

    async def __call__(self, now: float, tally: Tally) -> None:
        if self.server.process.poll() is not None:
            raise ServerError(f"vLLM ended during the load, see {self.server.log}")
        try:
            scrape = await asyncio.to_thread(metrics.scrape, f"{self.server.url}/metrics")
        except OSError:
            return
        if now > PATIENCE and not scrape.names("hitratio_"):
            raise TrialError(f"no metric of the plugin on /metrics after {PATIENCE:.0f} s, see {self.server.log}")
        began = time.time() - now  # the start of the load on the clock that the plugin's timestamp is on
        fitted = scrape.value("hitratio_last_fit_timestamp_seconds")
        self.looks.append(_Look(now, None if fitted is None else fitted - began, scrape))
        self.progress.show(self.line(now, tally, scrape))

    def line(self, now: float, tally: Tally, scrape: Scrape) -> str:
        settings = self.settings
        if now < settings.warmup_seconds:
            phase = f"warm-up {now:4.0f}/{settings.warmup_seconds:.0f} s"
        else:
            phase = f"measured {now - settings.warmup_seconds:3.0f}/{settings.measured_seconds:.0f} s"
        observed = scrape.value("hitratio_observed_ratio")
        predicted = scrape.value("hitratio_predicted_ratio", estimator=ESTIMATORS[0])
        failed = f", {len(tally.failures)} failed" if tally.failures else ""
        return (
            f"  {phase} · {len(tally.done):,}/{tally.planned:,} requests{failed}"
            f" · observed {_ratio(observed)} · predicted {_ratio(predicted)}"
        )

    def finish(self, tally: Tally) -> None:
        failures = tally.failures
        first = f" (the first: {failures[0].error})" if failures else ""
        self.progress.done(f"  load done: {len(tally.done):,} requests, {len(failures)} failed{first}, all answers in")

    def last_of_window(self) -> _Look:
        """The first look whose fit covers the whole measured window, and little more."""
        end = self.settings.warmup_seconds + self.settings.measured_seconds
        for look in self.looks:
            if look.fitted is not None and look.fitted >= end:
                return look
        raise TrialError("the plugin's metrics show no fit at the end of the measured window: was it enabled?")

    def at(self, moment: float) -> _Look:
        """The last look before a moment, by the time of its fit."""
        before = [look for look in self.looks if look.fitted is not None and look.fitted <= moment]
        return before[-1] if before else self.looks[0]


def _ratio(value: float | None) -> str:
    return "  -  " if value is None else f"{value:.3f}"


def _settled(server: Server) -> Scrape:
    """The counters once the plugin shows the last request: a fit that came after all answers."""
    drained = time.time()
    while True:
        scrape = metrics.scrape(f"{server.url}/metrics")
        fitted = scrape.value("hitratio_last_fit_timestamp_seconds")
        if (fitted is not None and fitted > drained) or time.time() > drained + SETTLE_TIMEOUT:
            return scrape
        time.sleep(0.25)


def _outcome(
    settings: Settings, server: Server, timetable: Timetable, tally: Tally, watch: _Watch, settled: Scrape
) -> Outcome:
    look = watch.last_of_window()
    scrape = look.scrape
    end = look.fitted if look.fitted is not None else look.time
    seconds = scrape.value("hitratio_window_seconds") or settings.measured_seconds
    recommended = scrape.value("hitratio_recommended_capacity_blocks")
    reachable = scrape.value("hitratio_target_reachable")
    return Outcome(
        capacity_blocks=server.capacity_blocks,
        sample=_sample(timetable, tally, end - seconds, end),
        observed=scrape.value("hitratio_observed_ratio"),
        predicted={each: scrape.value("hitratio_predicted_ratio", estimator=each) for each in ESTIMATORS},
        predicted_stderr={each: scrape.value("hitratio_predicted_ratio_stderr", estimator=each) for each in ESTIMATORS},
        gap=scrape.value("hitratio_divergence_ratio"),
        divergence_stderr=scrape.value("hitratio_divergence_ratio_stderr"),
        ceiling=scrape.value("hitratio_infinite_cache_ratio"),
        characteristic_time=scrape.value("hitratio_characteristic_time_seconds"),
        arrival_rate=scrape.value("hitratio_conversation_arrival_rate"),
        history_workload=scrape.value("hitratio_history_workload_blocks"),
        reusable_workload=scrape.value("hitratio_reusable_workload_blocks"),
        lifetime_blocks=scrape.value("hitratio_lifetime_blocks"),
        turns=scrape.value("hitratio_turns_per_conversation"),
        target=settings.target,
        target_reachable=None if reachable is None else bool(reachable),
        recommended_blocks=None if recommended is None else ceil(recommended),
        recommended_bytes=scrape.value("hitratio_recommended_capacity_bytes"),
        curve=_curve(scrape, watch.at(end - seconds).scrape),
        plugin_hit_tokens=settled.value("hitratio_hit_tokens_total"),
        plugin_prompt_tokens=settled.value("hitratio_prompt_tokens_total"),
        engine_hit_tokens=settled.value("vllm:prefix_cache_hits_total"),
        engine_prompt_tokens=settled.value("vllm:prefix_cache_queries_total"),
        exporter_agrees=_exporter_agrees(server, settled),
        degraded=sorted(reason for reason, on in settled.by_label("hitratio_degraded", "reason").items() if on),
        series=[_point(each) for each in watch.looks],
    )


def _sample(timetable: Timetable, tally: Tally, begin: float, end: float) -> Sample:
    sent: Sequence[Sent] = tally.within(begin, end)
    planned = sum(begin <= prompt.time < end for prompt in timetable.trace.prompts)
    latencies = tally.latencies
    failures = tally.failures
    return Sample(
        seconds=end - begin,
        requests=len(sent),
        conversations=len(timetable.started(begin, end)),
        requests_per_second=len(sent) / (end - begin),
        planned_per_second=planned / (end - begin),
        failures=len(failures),
        first_failure=failures[0].error if failures else None,
        late=tally.late,
        latency_p50=latencies[len(latencies) // 2] if latencies else None,
        latency_p99=latencies[len(latencies) * 99 // 100] if latencies else None,
    )


def _curve(later: Scrape, earlier: Scrape) -> dict[int, float]:
    """Ratios from what the counters gained over the window, by capacity; the ceiling (+Inf) is exported on its own."""
    name, label = "hitratio_curve_hit_blocks_total", "capacity_blocks"
    hits = metrics.difference(later.by_label(name, label), earlier.by_label(name, label))
    end = later.value("hitratio_prompt_blocks_total") or 0.0
    blocks = end - (earlier.value("hitratio_prompt_blocks_total") or 0.0)
    sizes = sorted(float(size) for size in hits if float(size) != float("inf"))
    by_size = {float(size): gained for size, gained in hits.items()}
    return {round(size): by_size[size] / blocks for size in sizes} if blocks else {}


def _point(look: _Look) -> Point:
    value = look.scrape.value
    return Point(
        time=look.fitted if look.fitted is not None else look.time,
        observed=value("hitratio_observed_ratio"),
        predicted=value("hitratio_predicted_ratio", estimator=ESTIMATORS[0]),
        divergence_stderr=value("hitratio_divergence_ratio_stderr"),
        prompt_blocks=value("hitratio_prompt_blocks_total"),
        hit_blocks=value("hitratio_hit_blocks_total"),
        predicted_hit_blocks=value("hitratio_predicted_hit_blocks_total", estimator=ESTIMATORS[0]),
    )


def _exporter_agrees(server: Server, settled: Scrape) -> bool:
    """Nothing is admitted any more, so the counters on both ports are equal."""
    try:
        exporter = metrics.scrape(server.exporter_url)
    except OSError:
        return False
    names = ("hitratio_hit_tokens_total", "hitratio_prompt_tokens_total", "hitratio_prompt_blocks_total")
    return all(exporter.value(name) == settled.value(name) for name in names)

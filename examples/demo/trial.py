"""One trial on a real vLLM: start a server, drive the load, read what the plugin says, stop the server."""

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

from examples.demo.errors import DemoError
from examples.demo.load import Tally, drive
from examples.demo.outcome import Look, Outcome, Sample, window_look
from examples.demo.phases import Phases
from examples.demo.progress import Progress
from examples.demo.server import Server, ServerError, serve
from examples.demo.settings import Settings
from examples.demo.workload import Timetable
from vllm_hitratio_plugin.metrics.fetch import FetchError, fetch
from vllm_hitratio_plugin.snapshot import Snapshot

#: Seconds of load after which the plugin must say something, even if only that there is not enough data yet.
PATIENCE = 20.0

#: Seconds for the plugin's counters to show the last request.
SETTLE_TIMEOUT = 30.0


class TrialError(DemoError):
    """The trial gave no figures; the message is one sentence."""


def run_trial(
    settings: Settings, timetable: Timetable, model: Path, capacity_blocks: int, name: str, phases: Phases
) -> Outcome:
    """Run the load against a server of `capacity_blocks`; raises :class:`TrialError` or ``ServerError``."""
    plugin_options = [
        *("--plugin", "hitratio", "--hitratio-target", f"{settings.target:g}"),
        *("--hitratio-window", f"{settings.measured_seconds:g}"),
        *("--hitratio-interval", f"{settings.interval_seconds:g}"),
    ]
    with ExitStack() as stack:
        with phases.phase(f"{name}: start"):
            server = stack.enter_context(
                serve(
                    model,
                    capacity_blocks=capacity_blocks,
                    log=settings.output / f"{name}.log",
                    plugin_options=plugin_options,
                    hitratio_port=settings.hitratio_port,
                )
            )
        watch = _Watch(settings, server)
        with phases.phase(f"{name}: load"):
            tally = asyncio.run(drive(timetable, server.url, server.model, watch, settings.interval_seconds))
            watch.finish(tally)
        with phases.phase(f"{name}: last figures and stop"), stack:
            return _outcome(settings, server, timetable, tally, watch.looks)


class _Watch:
    """Reads the plugin's figures during the load, from the engine's own exporter."""

    def __init__(self, settings: Settings, server: Server) -> None:
        self.settings, self.server = settings, server
        self.looks: list[Look] = []
        self.progress = Progress()

    async def __call__(self, now: float, tally: Tally) -> None:
        if self.server.process.poll() is not None:
            raise ServerError(f"vLLM ended during the load, see {self.server.log}")
        began = time.time() - now  # the start of the load in Unix time, the plugin's
        try:
            look = _look(await asyncio.to_thread(_snapshot, self.server.exporter_url), began)
        except FetchError:
            look = None
        if look is not None and look.time > 0 and (not self.looks or look.time > self.looks[-1].time):
            self.looks.append(look)
        elif now > PATIENCE and not self.looks:
            raise TrialError(f"the plugin has shown no figures after {PATIENCE:.0f} s, see {self.server.log}")
        self.progress.show(self.line(now, tally))

    def line(self, now: float, tally: Tally) -> str:
        warmup = self.settings.warmup_seconds
        if now < warmup:
            phase = f"warm-up {now:4.0f}/{warmup:.0f} s"
        else:
            phase = f"measured {now - warmup:3.0f}/{self.settings.measured_seconds:.0f} s"
        failed = f", {len(tally.failures)} failed" if tally.failures else ""
        observed, predicted = (
            (self.looks[-1].estimate.observed, self.looks[-1].predicted) if self.looks else (None, None)
        )
        return (
            f"  {phase} · {len(tally.done):,}/{tally.planned:,} requests{failed}"
            f" · observed {_ratio(observed)} · predicted {_ratio(predicted)}"
        )

    def finish(self, tally: Tally) -> None:
        failures = tally.failures
        first = f" (the first: {failures[0].error})" if failures else ""
        self.progress.done(f"  load done: {len(tally.done):,} requests, {len(failures)} failed{first}, all answers in")


def _ratio(value: float | None) -> str:
    return "  -  " if value is None else f"{value:.3f}"


def _snapshot(url: str) -> Snapshot:
    snapshots = fetch(url).snapshots
    if not snapshots:
        raise FetchError(f"{url} shows no engine with the plugin")
    return snapshots[0]


def _look(snapshot: Snapshot, began: float) -> Look | None:
    estimate, counters, sums = snapshot.estimate, snapshot.counters, snapshot.sums
    if estimate is None or counters is None or sums is None or snapshot.fit_time is None:
        return None
    return Look(snapshot.fit_time - began, estimate, counters, sums.prompt_blocks)


def _settled(server: Server) -> Snapshot:
    """The figures once the plugin shows the last request: those of a fit that came after all answers."""
    drained = time.time()
    while True:
        snapshot = _snapshot(server.exporter_url)
        if (snapshot.fit_time or 0.0) > drained or time.time() > drained + SETTLE_TIMEOUT:
            return snapshot
        time.sleep(0.25)


def _outcome(settings: Settings, server: Server, timetable: Timetable, tally: Tally, looks: list[Look]) -> Outcome:
    window = window_look(looks, settings.end_seconds)
    try:
        settled = _settled(server)
        page = _snapshot(f"{server.url}/metrics")
    except FetchError as error:
        raise TrialError(str(error)) from None
    if window is None or settled.counters is None:
        raise TrialError(f"the plugin shows no fit at the end of the measured window, see {server.log}")
    return Outcome(
        capacity_blocks=server.capacity_blocks,
        sample=_sample(timetable, tally, window.time - window.estimate.window_seconds, window.time),
        window=window,
        looks=looks,
        final=settled.counters,
        block_bytes=settled.block_bytes,
        vllm=page.vllm,
        exporter_agrees=_agree(settled, page),
        degraded=sorted(settled.degraded),
    )


def _agree(exporter: Snapshot, page: Snapshot) -> bool:
    """Whether both say the same: nothing is admitted any more, so their counters are equal."""
    one, other = exporter.counters, page.counters
    names = ("requests", "hit_tokens", "prompt_tokens", "prompt_blocks", "outcomes")
    return one is not None and other is not None and all(getattr(one, name) == getattr(other, name) for name in names)


def _sample(timetable: Timetable, tally: Tally, begin: float, end: float) -> Sample:
    requests, latencies, failures = tally.within(begin, end), tally.latencies, tally.failures
    return Sample(
        seconds=end - begin,
        requests=requests,
        conversations=len(timetable.started(begin, end)),
        requests_per_second=requests / (end - begin),
        planned_per_second=timetable.planned(begin, end) / (end - begin),
        failures=len(failures),
        first_failure=failures[0].error if failures else None,
        late=tally.late,
        latency_p50=latencies[len(latencies) // 2] if latencies else None,
        latency_p99=latencies[len(latencies) * 99 // 100] if latencies else None,
    )

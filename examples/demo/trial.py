"""One trial on a real vLLM: start a server, drive the load, read what the plugin says, stop the server."""

import asyncio
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from examples.demo.checks import number
from examples.demo.errors import DemoError
from examples.demo.load import Tally, drive
from examples.demo.outcome import Look, Outcome, Sample, window_look
from examples.demo.phases import Phases
from examples.demo.progress import Progress
from examples.demo.server import Server, serve
from examples.demo.settings import Settings
from examples.demo.workload import Timetable
from vllm_hitratio_plugin.metrics.fetch import FetchError, fetch
from vllm_hitratio_plugin.snapshot import Snapshot

#: Seconds for the plugin's counters to show the last request.
SETTLE_TIMEOUT = 30.0


def run_trial(
    settings: Settings, timetable: Timetable, model: Path, capacity_blocks: int, name: str, phases: Phases
) -> Outcome:
    """Run the load against a server of `capacity_blocks`; raises :class:`DemoError`."""
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
        first = f" (the first: {tally.failures[0].error})" if tally.failures else ""
        watch.progress.done(
            f"  load done: {len(tally.done):,} requests, {len(tally.failures)} failed{first}, all answers in"
        )
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
            raise DemoError(f"vLLM ended during the load, see {self.server.log}")
        began = time.time() - now  # the start of the load in Unix time, the plugin's
        with suppress(FetchError):  # the next one may come in time
            self.add(await asyncio.to_thread(_snapshot, self.server.exporter_url), began)
        self.progress.show(self.line(now, tally))

    def add(self, snapshot: Snapshot, began: float) -> None:
        """Keep the figures of a snapshot, unless they are known or older than the load."""
        estimate, counters, sums = snapshot.estimate, snapshot.counters, snapshot.sums
        if estimate is None or counters is None or sums is None or snapshot.fit_time is None:
            return
        last = self.looks[-1].counters if self.looks else None
        if snapshot.fit_time > began and counters != last:
            self.looks.append(Look(snapshot.fit_time - began, estimate, counters, sums.prompt_blocks))

    def line(self, now: float, tally: Tally) -> str:
        warmup, window = self.settings.warmup_seconds, self.settings.measured_seconds
        phase = f"warm-up {now:4.0f}/{warmup:.0f} s"
        if now >= warmup:
            phase = f"measured {now - warmup:3.0f}/{window:.0f} s"
        failed = f", {len(tally.failures)} failed" if tally.failures else ""
        last = self.looks[-1] if self.looks else None
        figures = (last.estimate.observed, last.predicted) if last else (None, None)
        observed, predicted = (number(value, 3) for value in figures)
        done = f"{len(tally.done):,}/{tally.planned:,} requests{failed}"
        return f"  {phase} · {done} · observed {observed:5} · predicted {predicted:5}"


def _snapshot(url: str) -> Snapshot:
    snapshots = fetch(url).snapshots
    if not snapshots:
        raise FetchError(f"{url} shows no engine with the plugin")
    return snapshots[0]


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
        settled, page = _settled(server), _snapshot(f"{server.url}/metrics")
    except FetchError as error:
        raise DemoError(str(error)) from None
    if window is None or settled.counters is None:
        raise DemoError(f"the plugin shows no fit at the end of the measured window, see {server.log}")
    return Outcome(
        capacity_blocks=server.capacity_blocks,
        sample=_sample(timetable, tally, window),
        window=window,
        looks=looks,
        final=settled.counters,
        block_bytes=settled.block_bytes,
        vllm=page.vllm,
        exporter_agrees=page.counters is not None
        and all(
            getattr(settled.counters, name) == getattr(page.counters, name)
            for name in ("requests", "hit_tokens", "prompt_tokens", "prompt_blocks", "outcomes")
        ),
        degraded=sorted(settled.degraded),
    )


def _sample(timetable: Timetable, tally: Tally, window: Look) -> Sample:
    begin, end, seconds = window.begin, window.time, window.estimate.window_seconds
    requests = sum(begin <= each.time < end for each in tally.answered)
    latencies, failures = sorted(each.latency for each in tally.answered), tally.failures
    return Sample(
        seconds=seconds,
        requests=requests,
        conversations=len(timetable.started(begin, end)),
        requests_per_second=requests / seconds,
        planned_per_second=timetable.planned(begin, end) / seconds,
        failures=len(failures),
        first_failure=failures[0].error if failures else None,
        late=sum(each.late for each in tally.done),
        latency_p50=latencies[len(latencies) // 2] if latencies else None,
        latency_p99=latencies[len(latencies) * 99 // 100] if latencies else None,
    )

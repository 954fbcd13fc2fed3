"""The service of one engine: a thread that reads the recorder, keeps the monitor, and publishes snapshots."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from dataclasses import replace
from multiprocessing.util import Finalize
from typing import Any

from vllm_hitratio_plugin import __version__
from vllm_hitratio_plugin.engine.counter_history import CounterHistory
from vllm_hitratio_plugin.engine.probe import CacheFacts
from vllm_hitratio_plugin.engine.recorder import Recorder
from vllm_hitratio_plugin.engine.requests import tell
from vllm_hitratio_plugin.exporter.server import Exporter
from vllm_hitratio_plugin.failures import where
from vllm_hitratio_plugin.metrics import snapshot_folder
from vllm_hitratio_plugin.monitor import LEAST_REUSES, Monitor
from vllm_hitratio_plugin.settings import SNAPSHOT_DIR, Settings
from vllm_hitratio_plugin.snapshot import Snapshot

logger = logging.getLogger("vllm.hitratio")

#: Seconds between two looks at the queue: a record keeps its request alive, but waking up has its price, too.
_DRAIN_S = 2.0

#: Ports that are tried, from the engine's own on.
_PORTS = 64

#: Failures of the workload side after which recording stops for good.
_FAILURES = 10


def _vllm_version() -> str:
    import vllm

    return str(getattr(vllm, "__version__", "unknown"))


class Service:
    """Everything of ours that runs in an EngineCore process, away from its step.

    Each part may fail on its own: the failure is logged once, shown as ``hitratio_degraded{reason}``, and the engine
    never notices.
    """

    def __init__(
        self,
        manager: Any,
        facts: CacheFacts,
        settings: Settings,
        *,
        model_name: str,
        engine: str,
        local_rank: int = 0,
        degraded: dict[str, str] | None = None,
    ) -> None:
        self._facts = facts
        self._settings = settings
        self._local_rank = local_rank
        self._degraded = degraded or {}
        self._logged: set[str] = set()
        self._failures = 0
        self._folder = os.environ.get(SNAPSHOT_DIR)
        # Why there is no exporter, in words; None where there is one, or none is wanted.
        self._no_exporter: str | None = None
        # The engine's clock is monotonic; Prometheus wants Unix time.
        self._epoch = time.time() - time.monotonic()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hitratio", daemon=True)
        self._recorder: Recorder | None = None
        self._monitor = self._new_monitor()
        self._history = CounterHistory(settings.window)
        self._snapshot = Snapshot(
            model_name=model_name,
            engine=engine,
            version=__version__,
            vllm_version=_vllm_version(),
            unhashed=facts.unhashed,
            wall_time=time.time(),
            capacity_blocks=facts.capacity_blocks,
            block_size=facts.block_size,
            block_bytes=facts.block_bytes,
            modelled=facts.not_modelled is None,
            max_model_len=facts.max_model_len,
            match_unit=facts.match_unit,
            degraded=dict(self._degraded),
        )
        if not facts.caching:
            self._degrade(
                "prefix_caching_off",
                "prefix caching is off (--no-enable-prefix-caching): nothing can be reused, so nothing is measured",
            )
        else:
            if facts.not_modelled is not None:
                self._degrade("not_modelled", f"{facts.not_modelled}; observed figures only, no prediction")
            self._recorder = Recorder(manager)
            unit = facts.match_unit or facts.block_size
            if facts.max_model_len is not None and unit >= facts.max_model_len:
                logger.warning(
                    "hitratio: a block of %d tokens is no shorter than the longest request allowed (%d tokens): "
                    "nothing can ever hit",
                    unit,
                    facts.max_model_len,
                )
            if settings.target is not None and facts.not_modelled is None:
                logger.info("hitratio: recommending a capacity for a hit ratio of %g", settings.target)

    def start(self) -> None:
        """Start the thread: it alone waits for names to be resolved, for files, and for anything else."""
        self._thread.start()
        # Runs in children of multiprocessing, too, which leave without exit handlers. It may be killed before.
        self._at_exit = Finalize(None, self.stop, exitpriority=0)

    def stop(self) -> None:
        """Let go of the manager, end the thread, and take the snapshot away: the engine ends. Never raises."""
        self._stop.set()
        with contextlib.suppress(Exception):
            if self._recorder is not None:
                self._recorder.close()
            # A refresh that is under way writes for the last time.
            ended = self._lock.acquire(timeout=2)
            try:
                if self._folder:
                    snapshot_folder.remove(self._folder, self._snapshot.engine)
            finally:
                if ended:
                    self._lock.release()
        if self._thread.is_alive():
            self._thread.join(timeout=2)

    @property
    def snapshot(self) -> Snapshot:
        """The last published state."""
        return self._snapshot

    def drain(self) -> None:
        """Work off the queue."""
        recorder = self._recorder
        if recorder is None:
            return
        if recorder.error is not None:
            self._degrade("hook", f"recording stopped: {where(recorder.error)}")
            self._recorder = None
            return
        if recorder.full:
            self._degrade("overflow", "records were dropped: the counters are too low, and the estimate starts again")
            self._monitor = self._new_monitor()
        queue = recorder.queue
        monitor = self._monitor
        try:
            while queue:
                tell(monitor, recorder.take(), self._facts)
        except Exception as error:
            self._failures += 1
            self._degrade("workload", f"the estimate starts again: {where(error)}")
            self._monitor = self._new_monitor()
            if self._failures >= _FAILURES:
                self._degrade("workload", f"recording stopped after {_FAILURES} failures: {where(error)}")
                recorder.close()
                self._recorder = None

    def refresh(self) -> None:
        """Fit, and publish a snapshot."""
        with self._lock:
            self.drain()
            if self._recorder is None:
                # Nothing is measured, or not any more: no figure may look as if it were.
                fresh = replace(
                    self._snapshot, estimate=None, counters=None, sums=None, earlier=None, earlier_seconds=None
                )
            else:
                fresh = self._measured(self._monitor)
            self._judge_exporter()
            self._snapshot = replace(fresh, wall_time=time.time(), degraded=dict(self._degraded))
            if self._folder and not self._stop.is_set():
                try:
                    snapshot_folder.write(self._folder, self._snapshot)
                    self._degraded.pop("snapshot", None)
                except Exception as error:
                    self._degrade("snapshot", f"vLLM's /metrics is not up to date: {error}")

    def _measured(self, monitor: Monitor) -> Snapshot:
        """The snapshot with the monitor's state, and with a new estimate unless that fails."""
        began, now = time.perf_counter(), time.monotonic()
        fresh = replace(
            self._snapshot,
            index_blocks=monitor.index_blocks,
            index_bytes=monitor.index_bytes,
            last_reset=None if monitor.last_reset is None else monitor.last_reset + self._epoch,
        )
        try:
            estimate, counters = monitor.refresh(now), monitor.counters
            earlier, earlier_seconds = self._history.window_ago(now, counters, estimate.window_seconds)
            return replace(
                fresh,
                estimate=estimate,
                sums=monitor.sums,
                counters=counters,
                earlier=earlier,
                earlier_seconds=earlier_seconds,
                fit_time=time.time(),
                fit_seconds=time.perf_counter() - began,
            )
        except Exception as error:
            # What was published last stays, with its own timestamp, which tells stale from wrong.
            self._degrade("fit", f"the estimate is stale: {where(error)}")
            return fresh

    def _run(self) -> None:
        exporter = None
        due = time.monotonic()
        while not self._stop.is_set():
            try:
                if time.monotonic() >= due:
                    exporter = exporter or self._export()
                    self.refresh()
                    due = time.monotonic() + self._settings.interval
                else:
                    with self._lock:
                        self.drain()
            except Exception as error:
                self._degrade("workload", where(error))
            self._stop.wait(min(_DRAIN_S, self._settings.interval))
        if exporter is not None:
            exporter.close()

    def _export(self) -> Exporter | None:
        if not self._settings.port:
            return None
        # Other servers of this node, and their ranks, have ports from the same one on.
        first = self._settings.port + self._local_rank
        exporter = error = None
        for port in range(first, first + _PORTS):
            try:
                exporter = Exporter(self._settings.host, port, lambda: self._snapshot)
                break
            except Exception as failed:
                error = error or failed
                if getattr(failed, "errno", None) != errno.EADDRINUSE:
                    break
        if exporter is None:
            self._no_exporter = f"no exporter on {self._settings.host}:{first}: {error}"
            return None
        self._no_exporter = None
        self._snapshot = replace(self._snapshot, exporter=exporter.url)
        in_use = f" (port {first} is in use)" if port != first else ""
        logger.info("hitratio: metrics at %s/metrics%s", exporter.url, in_use)
        return exporter

    def _judge_exporter(self) -> None:
        """Degraded without an exporter only where no API server shows the figures either."""
        shown = self._folder and "snapshot" not in self._degraded and snapshot_folder.is_read(self._folder)
        if self._no_exporter is not None and not shown:
            self._degrade("exporter", self._no_exporter)
        else:
            self._degraded.pop("exporter", None)

    def _new_monitor(self) -> Monitor:
        return Monitor(
            block_size=self._facts.block_size,
            capacity_blocks=self._facts.capacity_blocks,
            unhashed=self._facts.unhashed,
            window_seconds=self._settings.window,
            target=self._settings.target,
            index_blocks=self._settings.index_blocks,
            dropped_blocks=self._facts.dropped_blocks,
            match_unit=self._facts.match_unit,
            # Reuses are what a prediction rests on. The observed ratio needs requests alone.
            least_reuses=LEAST_REUSES if self._facts.not_modelled is None else 0,
        )

    def _degrade(self, reason: str, words: str) -> None:
        # Once, though some come and go.
        if reason not in self._logged:
            self._logged.add(reason)
            logger.warning("hitratio: %s", words)
        self._degraded[reason] = words
        # At once: what failed may be what would have published it.
        self._snapshot = replace(self._snapshot, degraded=dict(self._degraded))

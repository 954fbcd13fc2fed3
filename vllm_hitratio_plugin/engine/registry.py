"""The registry that an API server answers ``/metrics`` from."""

from __future__ import annotations

import logging
import os

from prometheus_client import CollectorRegistry

from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.metrics.snapshot_folder import mark_read, read_all
from vllm_hitratio_plugin.settings import SNAPSHOT_DIR, Settings

logger = logging.getLogger("vllm.hitratio")

#: Refreshes, and at least seconds, that an engine may miss before it leaves the page.
_MISSED = 4
_LEAST_S = 10.0

#: Folders whose failure was logged: with several API servers, each scrape has a new registry.
_logged: set[str] = set()


def register_snapshots(registry: CollectorRegistry) -> None:
    """Add the engines' snapshots to the registry, once.

    Works with one API server (the default registry) and with several (a registry that also reads prometheus_client's
    multiprocess files): every server reads the same snapshot folder, so all show the same. An engine that has ended, or
    hangs, leaves the page after a few refreshes that it misses.
    """
    folder = os.environ.get(SNAPSHOT_DIR)
    if folder and not getattr(registry, "_hitratio_registered", False):
        settings, _ = Settings.from_env()
        oldest = max(_MISSED * settings.interval, _LEAST_S)
        registry.register(SnapshotCollector(lambda: read_all(folder, oldest)))
        registry._hitratio_registered = True  # type: ignore[attr-defined]
        try:
            mark_read(folder)
        except OSError as error:
            if folder not in _logged:
                _logged.add(folder)
                logger.warning("hitratio: the folder of snapshots can't be used: %s", error)

"""Collectors: snapshots computed or read at scrape time, no state of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Metric

from vllm_hitratio_plugin.metrics.families import families
from vllm_hitratio_plugin.metrics.snapshot_folder import read_all
from vllm_hitratio_plugin.settings import SNAPSHOT_DIR
from vllm_hitratio_plugin.snapshot import Snapshot


class SnapshotCollector:
    """Serves whatever snapshots ``read`` returns at the moment of the scrape."""

    def __init__(self, read: Callable[[], Sequence[Snapshot]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Metric families; never raises, because a raising collector would take vLLM's whole page down."""
        try:
            found = list(families(self._read()))
            for family in found:
                for sample in family.samples:
                    float(sample.value)  # what can't be printed would raise later, where nobody catches it
            return found
        except Exception:
            return []


def register_snapshots(registry: CollectorRegistry) -> None:
    """Add the engines' snapshots to the registry that an API server answers ``/metrics`` from, once.

    Works with one API server (the default registry) and with several (a registry that also reads prometheus_client's
    multiprocess files): every server reads the same snapshot folder, so all show the same.
    """
    folder = os.environ.get(SNAPSHOT_DIR)
    if folder and not getattr(registry, "_hitratio_registered", False):
        registry.register(SnapshotCollector(lambda: read_all(folder)))
        registry._hitratio_registered = True  # type: ignore[attr-defined]

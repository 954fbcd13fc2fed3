"""The registry that an API server answers ``/metrics`` from."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry

from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.metrics.snapshot_folder import read_all
from vllm_hitratio_plugin.settings import SNAPSHOT_DIR


def register_snapshots(registry: CollectorRegistry) -> None:
    """Add the engines' snapshots to the registry, once.

    Works with one API server (the default registry) and with several (a registry that also reads prometheus_client's
    multiprocess files): every server reads the same snapshot folder, so all show the same.
    """
    folder = os.environ.get(SNAPSHOT_DIR)
    if folder and not getattr(registry, "_hitratio_registered", False):
        registry.register(SnapshotCollector(lambda: read_all(folder)))
        registry._hitratio_registered = True  # type: ignore[attr-defined]

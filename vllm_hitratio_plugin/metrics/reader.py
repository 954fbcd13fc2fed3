"""Prometheus text → snapshots, by the catalogue: what ``collector`` shows, as far as a page tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as PageSample

from vllm_hitratio_plugin.metrics.catalogue import DEGRADED, METRICS
from vllm_hitratio_plugin.metrics.metric import Metric
from vllm_hitratio_plugin.metrics.series import Identity, identity_of
from vllm_hitratio_plugin.metrics.sources import Fields, Sample
from vllm_hitratio_plugin.metrics.vllm_metrics import vllm_counters
from vllm_hitratio_plugin.snapshot import Snapshot, VllmCounters

_BY_SAMPLE: dict[str, Metric] = {name: metric for metric in METRICS for name in metric.sample_names}


@dataclass(frozen=True)
class Page:
    """What one page of metrics says."""

    snapshots: list[Snapshot]
    """Engines with the plugin, with vLLM's own figures where the page has them."""
    without_plugin: list[VllmCounters]
    """Engines of vLLM that the plugin says nothing about."""
    degraded: tuple[str, ...] = ()
    """What is wrong with the plugin in the server itself, which shows none of its engines: reasons of
    ``hitratio_degraded``."""
    looked_at: str = ""
    """Where it was looked for, a sentence; empty where an engine with the plugin was found."""


def parse(text: str, now: float) -> Page:
    """Read a page.

    A page lacks what only a whole snapshot has: the sums, and the words that explain a degradation. Forks deeper than
    16 blocks are known to the bounds of their histogram.

    Args:
        text: In Prometheus text format.
        now: Unix seconds, when it was read.

    Raises:
        ValueError: it is no such page.
    """
    samples = list(_samples(text))
    engines: dict[Identity, dict[str, list[Sample]]] = {}
    for sample in samples:
        metric = _BY_SAMPLE.get(sample.name)
        if metric is not None:
            engine = identity_of(sample.labels, (*metric.labels, "le"))
            engines.setdefault(engine, {}).setdefault(metric.name, []).append(_ours(metric, sample))
    vllm = vllm_counters(samples)
    snapshots = []
    degraded: dict[str, None] = {}
    for engine, found in engines.items():
        snapshot = _snapshot(engine, found, now)
        if snapshot is not None:
            snapshots.append(replace(snapshot, vllm=vllm.pop(engine, None)))
        elif not engine.model_name:
            degraded |= {reason: None for value, (reason, *_), _ in found.get(DEGRADED.name, ()) if value > 0}
    return Page(snapshots, list(vllm.values()), tuple(degraded))


def _samples(text: str) -> Iterator[PageSample]:
    try:
        for family in text_string_to_metric_families(text):
            yield from family.samples
    except (LookupError, TypeError, AttributeError) as error:  # the parser's, for some broken lines
        raise ValueError(f"no Prometheus text: {error}") from None


def _ours(metric: Metric, sample: PageSample) -> Sample:
    suffix = sample.name.removeprefix(metric.name) if metric.kind == "histogram" else ""
    labels = tuple(sample.labels.get(name, "") for name in metric.labels_of(suffix))
    return Sample(sample.value, labels, suffix)


def _snapshot(engine: Identity, found: dict[str, list[Sample]], now: float) -> Snapshot | None:
    """The snapshot that the samples make; None without a capacity, which every engine with the plugin shows."""
    fields: Fields = {
        **{"model_name": engine.model_name, "engine": engine.engine, "labels": dict(engine.labels), "wall_time": now},
        **{"version": "", "vllm_version": "", "unhashed": ""},
        **{"block_size": 0, "block_bytes": None, "modelled": True},
        **{"estimate.time": now, "estimate.window_seconds": 0.0, "estimate.requests": 0, "estimate.reuses": 0},
    }
    try:
        for metric in METRICS:
            if metric.name in found and metric.source.readable:
                metric.source.read(found[metric.name], fields)
    except (LookupError, ArithmeticError) as error:
        raise ValueError(f"{type(error).__name__} in {metric.name}") from None
    if "capacity_blocks" not in fields:
        return None
    fields["estimate.capacity_blocks"] = fields["capacity_blocks"]
    # What is always there where an engine records: without it, zeros would look measured.
    missing = [part for part, sign in _SIGNS.items() if sign not in fields]
    data: dict[str, Any] = {}
    for path, value in fields.items():
        part, _, name = path.partition(".")
        if not name:
            data[part] = value
        elif part not in missing:
            data.setdefault(part, {})[name] = value
    return msgspec.convert(data, Snapshot, strict=False, str_keys=True)


_SIGNS = {"counters": "counters.requests", "estimate": "estimate.ready"}

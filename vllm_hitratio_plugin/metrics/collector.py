"""Snapshots → Prometheus metrics, by the catalogue. A collector computes at the scrape and has no state of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from prometheus_client import Metric as Family

from vllm_hitratio_plugin.failures import where
from vllm_hitratio_plugin.metrics.catalogue import DEGRADED, METRICS
from vllm_hitratio_plugin.metrics.metric import ENGINE_LABELS, Metric
from vllm_hitratio_plugin.metrics.sources import Sample
from vllm_hitratio_plugin.snapshot import Snapshot

logger = logging.getLogger("vllm.hitratio")

#: Values of ``hitratio_degraded``'s label: where a metric could not be shown, and where there is no snapshot to show.
COLLECTOR = "collector"
MISSING = "snapshot"

#: Kinds of failures that were logged; there are few, because there are few places where something can fail.
_logged: set[str] = set()


class SnapshotCollector:
    """Shows the snapshots that ``read`` returns at the moment of the scrape.

    It never raises, because that would take vLLM's whole page down. What can't be shown is left out, logged once per
    kind of failure, and visible as ``hitratio_degraded{reason="collector"}``. A page without any snapshot says so, too:
    otherwise it would look as if the plugin were off.
    """

    def __init__(self, read: Callable[[], Sequence[Snapshot]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Family]:
        """The metrics of all engines."""
        try:
            snapshots = self._read()
            return list(families(snapshots)) if snapshots else [_failed_family(MISSING)]
        except Exception as error:
            _log(error, "the snapshots")
            return [_failed_family(COLLECTOR)]


def families(snapshots: Iterable[Snapshot]) -> Iterator[Family]:
    """The metrics of all engines together; what was not measured has no sample, a metric without one is left out."""
    engines = [(str(snapshot.model_name), str(snapshot.engine), _samples(snapshot)) for snapshot in snapshots]
    for metric in METRICS:
        family = Family(metric.name, metric.help, metric.kind)
        for model, engine, samples in engines:
            for sample in samples[metric.name]:
                _add(family, metric, (model, engine), sample)
        if family.samples:
            yield family


def _samples(snapshot: Snapshot) -> dict[str, list[Sample]]:
    """The samples by metric."""
    found: dict[str, list[Sample]] = {}
    failed = False
    for metric in METRICS:
        try:
            found[metric.name] = [_printable(sample) for sample in metric.samples(snapshot)]
        except Exception as error:
            _log(error, metric.name)
            found[metric.name], failed = [], True
    if failed:
        marked = replace(snapshot, degraded={**_texts(snapshot.degraded), COLLECTOR: "see the log"})
        found[DEGRADED.name] = list(DEGRADED.samples(marked))
    return found


def _printable(sample: Sample) -> Sample:
    """The sample, converted so that writing the page cannot fail."""
    return Sample(float(sample.value), tuple(map(str, sample.labels)), sample.suffix)


def _texts(degraded: object) -> dict[str, str]:
    return degraded if isinstance(degraded, dict) else {}


def _add(family: Family, metric: Metric, engine: tuple[str, str], sample: Sample) -> None:
    names = metric.labels_of(sample.suffix)
    labels = dict(zip((*ENGINE_LABELS, *names), (*engine, *sample.labels), strict=True))
    suffix = "_total" if metric.kind == "counter" else sample.suffix
    family.add_sample(metric.name + suffix, labels, sample.value)


def _failed_family(reason: str) -> Family:
    """The trace of a failure that belongs to no engine."""
    family = Family(DEGRADED.name, DEGRADED.help, DEGRADED.kind)
    _add(family, DEGRADED, ("", ""), Sample(1.0, (reason,)))
    return family


def _log(error: Exception, what: str) -> None:
    kind = where(error)
    if kind not in _logged:
        _logged.add(kind)
        logger.warning("hitratio: metrics are missing from this page, %s among them: %s", what, kind)

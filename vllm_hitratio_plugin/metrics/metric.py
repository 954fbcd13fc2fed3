"""What is declared of a metric."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from vllm_hitratio_plugin.metrics.sources import Sample, Source, Value
from vllm_hitratio_plugin.snapshot import Snapshot

Kind = Literal["counter", "gauge", "histogram"]

#: What a query appends to a metric's name, by kind.
_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum"),
}

#: Labels of every metric, equal to vLLM's.
ENGINE_LABELS = ("model_name", "engine")


@dataclass(frozen=True)
class Metric:
    """One metric of the plugin."""

    name: str
    """Without ``_total``."""
    kind: Kind
    help: str
    """Stands alone: Prometheus shows it without its neighbors."""
    source: Source
    labels: tuple[str, ...] = ()
    """Labels other than ``ENGINE_LABELS`` and a histogram's ``le``."""
    modelled: bool = False
    """Whether it is shown only for caches that the model describes."""

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The names that a query uses."""
        return tuple(self.name + suffix for suffix in _SUFFIXES[self.kind])

    def labels_of(self, suffix: str = "") -> tuple[str, ...]:
        """The labels of its samples with that suffix, other than ``ENGINE_LABELS``."""
        return (*self.labels, "le") if suffix == "_bucket" else self.labels

    def samples(self, snapshot: Snapshot) -> Iterable[Sample]:
        """The values to show for one engine; none for what was not measured."""
        return self.source.samples(snapshot) if snapshot.modelled or not self.modelled else ()


def counter(name: str, help_: str, source: Source | str, *labels: str) -> Metric:
    """A counter; ``source`` may be the path of a number in the snapshot."""
    return Metric(name, "counter", help_, _source(source), labels)


def gauge(name: str, help_: str, source: Source | str, *labels: str) -> Metric:
    """A gauge; ``source`` may be the path of a number in the snapshot."""
    return Metric(name, "gauge", help_, _source(source), labels)


def histogram(name: str, help_: str, source: Source) -> Metric:
    """A histogram."""
    return Metric(name, "histogram", help_, source)


def where_modelled(*metrics: Metric) -> Iterable[Metric]:
    """The metrics, shown only for caches that the model describes."""
    return (replace(metric, modelled=True) for metric in metrics)


def _source(source: Source | str) -> Source:
    return Value(source) if isinstance(source, str) else source

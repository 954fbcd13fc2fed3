"""Where the values of a metric are in a snapshot, and how samples of a page become fields of a snapshot again."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from vllm_hitratio_plugin.snapshot import DEGRADATIONS, OUTCOMES, Snapshot

#: The label value of an infinite cache.
UNLIMITED = "+Inf"

#: Fields of a snapshot by their path, such as ``estimate.observed``.
Fields = dict[str, Any]


class Sample(NamedTuple):
    """One value of a metric."""

    value: float
    labels: tuple[str, ...] = ()
    """Values of the labels other than model_name and engine; for a bucket of a histogram, its upper bound."""
    suffix: str = ""
    """Of a histogram: _bucket, _sum or _count."""


class Source:
    """Where a metric's values are."""

    #: Whether :meth:`read` gets back what :meth:`samples` shows.
    readable = True

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """The values to show; none for what was not measured."""
        raise NotImplementedError

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """Set the fields that the samples tell.

        Raises:
            ValueError: the samples can't come from this metric.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Value(Source):
    """One number, or a truth shown as 1 or 0."""

    path: str
    flag: bool = False
    shown: Callable[[Any], float] = float

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """One, or none."""
        value = at(snapshot, self.path)
        if value is not None:
            yield Sample(self.shown(value))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The number."""
        value = samples[0].value
        fields[self.path] = bool(value) if self.flag else value


@dataclass(frozen=True)
class ByKey(Source):
    """A mapping from text to numbers."""

    path: str
    keys: tuple[str, ...] = ()
    """Keys that the field always has; ``missing`` stands for one that a page lacks."""
    missing: float | None = None

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """One per key with a number."""
        for key, value in (at(snapshot, self.path) or {}).items():
            if value is not None:
                yield Sample(float(value), (key,))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The mapping."""
        fields[self.path] = dict.fromkeys(self.keys, self.missing) | _by_label(samples)


@dataclass(frozen=True)
class ByCapacity(Source):
    """A mapping from capacities in blocks to numbers, and the number of an infinite cache if it is shown, too."""

    path: str
    unlimited: str | None = None
    endless: bool = False
    """Whether the field has None where the number is infinite."""

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """Ascending in capacity."""
        for size, value in sorted((at(snapshot, self.path) or {}).items()):
            yield Sample(math.inf if value is None else float(value), (str(size),))
        if self.unlimited is not None and (value := at(snapshot, self.unlimited)) is not None:
            yield Sample(float(value), (UNLIMITED,))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The mapping, and the number of the infinite cache."""
        found = _by_label(samples)
        if self.unlimited is not None:
            fields[self.unlimited] = found.pop(UNLIMITED, 0.0)
        ends = math.inf if self.endless else None
        fields[self.path] = {int(size): None if value == ends else value for size, value in found.items()}


@dataclass(frozen=True)
class ByOutcome(Source):
    """A list in the order of ``OUTCOMES``."""

    path: str

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """One per outcome and reason."""
        values = at(snapshot, self.path)
        if values:
            for labels, value in zip(OUTCOMES, values, strict=True):
                yield Sample(float(value), labels)

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The list; what the page lacks is 0."""
        found = {sample.labels: sample.value for sample in samples}
        fields[self.path] = [found.get(labels, 0) for labels in OUTCOMES]


@dataclass(frozen=True)
class Buckets(Source):
    """A histogram: counts per bucket, the last one beyond all bounds, and the sum of what was counted."""

    path: str
    bounds: tuple[float, ...]
    sum_path: str

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """Cumulative, as Prometheus has them."""
        counts = at(snapshot, self.path)
        if counts is not None:
            yield from _histogram(self.bounds, counts, at(snapshot, self.sum_path))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The counts and the sum."""
        fields[self.path] = _counts(self.bounds, samples)
        fields[self.sum_path] = next((sample.value for sample in samples if sample.suffix == "_sum"), 0.0)


@dataclass(frozen=True)
class CountsByNumber(Source):
    """A histogram of a mapping from whole numbers to counts; a page tells the numbers to the bounds of its buckets."""

    path: str
    bounds: tuple[int, ...]

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """Cumulative, as Prometheus has them."""
        numbers = at(snapshot, self.path)
        if numbers is not None:
            counts = [0] * (len(self.bounds) + 1)
            for number, count in numbers.items():
                counts[bisect_left(self.bounds, number)] += count
            yield from _histogram(self.bounds, counts, sum(number * count for number, count in numbers.items()))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The mapping, without numbers that were not counted."""
        numbers = (*self.bounds, self.bounds[-1] + 1)
        counts = _counts(self.bounds, samples)
        fields[self.path] = {number: count for number, count in zip(numbers, counts, strict=True) if count}


@dataclass(frozen=True)
class Texts(Source):
    """Fields that are texts, as labels of a metric that is always 1; none where a text is not known."""

    paths: tuple[str, ...]

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """One, or none."""
        texts = [at(snapshot, path) for path in self.paths]
        if None not in texts:
            yield Sample(1.0, tuple(map(str, texts)))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The texts."""
        fields.update(zip(self.paths, samples[0].labels, strict=True))


@dataclass(frozen=True)
class Degraded(Source):
    """Every degradation, 1 while it is active. A page has its name, not the words that explain it."""

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """All from the start, so that an alert sees each change."""
        for reason in DEGRADATIONS:
            yield Sample(float(reason in snapshot.degraded), (reason,))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The active ones, and whether the engine is modelled."""
        words = "vLLM's log and the exporter's /hitratio.json have the explanation"
        fields["degraded"] = {reason: words for reason, active in _by_label(samples).items() if active > 0}
        fields["modelled"] = "not_modelled" not in fields["degraded"]


@dataclass(frozen=True)
class Significant(Source):
    """Which keys of a mapping are in a list, 1 or 0 for each."""

    path: str
    of: str
    """The mapping; it orders the list that is read, the largest number first."""

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """One per key of the mapping."""
        chosen = at(snapshot, self.path)
        for key in at(snapshot, self.of) or ():
            yield Sample(float(key in chosen), (key,))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The list."""
        sizes = fields.get(self.of, {})
        chosen = [key for key, active in _by_label(samples).items() if active > 0]
        fields[self.path] = sorted(chosen, key=lambda key: -abs(sizes.get(key, 0.0)))


@dataclass(frozen=True)
class InBytes(Source):
    """A number of blocks, in bytes on one worker; with the number of blocks it tells the bytes per block."""

    path: str

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """One, or none."""
        yield from _product(at(snapshot, self.path), snapshot.block_bytes)

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The bytes per block."""
        if blocks := fields.get(self.path):
            fields["block_bytes"] = round(samples[0].value / blocks)


@dataclass(frozen=True)
class Derived(Source):
    """Computed from fields that other metrics show, so there is nothing to read."""

    value: Callable[[Snapshot], float | None]
    readable = False

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """One, or none."""
        yield from _product(self.value(snapshot), 1)

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """Nothing."""


def at(snapshot: Snapshot, path: str) -> Any:
    """The field at a path; None where it or what it belongs to was not measured."""
    head, _, rest = path.partition(".")
    value = getattr(snapshot, head)
    return attrgetter(rest)(value) if rest and value is not None else value


def _product(number: float | None, each: int | None) -> Iterator[Sample]:
    if number is not None and each is not None:
        yield Sample(float(number * each))


def _by_label(samples: Iterable[Sample]) -> dict[str, float]:
    return {sample.labels[0]: sample.value for sample in samples}


def _histogram(bounds: Sequence[float], counts: Sequence[float], total: float) -> Iterator[Sample]:
    cumulative = list(accumulate(map(float, counts)))
    for bound, below in zip((*map(str, bounds), UNLIMITED), cumulative, strict=True):
        yield Sample(below, (bound,), "_bucket")
    yield Sample(cumulative[-1], suffix="_count")
    yield Sample(float(total), suffix="_sum")


def _counts(bounds: Sequence[float], samples: Iterable[Sample]) -> list[float]:
    below = {float(sample.labels[0]): sample.value for sample in samples if sample.suffix == "_bucket"}
    edges = [0.0, *(below.get(float(bound), 0.0) for bound in (*bounds, math.inf))]
    return [high - low for low, high in pairwise(edges)]

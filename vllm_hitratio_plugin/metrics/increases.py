"""How much each counter rose over the last window: with it, one look at a page tells the present, not totals."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from vllm_hitratio_plugin.metrics.sources import UNLIMITED, Fields, Sample, Source
from vllm_hitratio_plugin.snapshot import FORK_DEPTH_BOUNDS, INTERARRIVAL_BOUNDS, Counters, Snapshot

_SUMS = tuple(item.name for item in fields(Counters) if item.type in ("int", "float"))
_FORKS, _TURNS = "fork_depths", "interarrival_buckets"


@dataclass(frozen=True)
class Increases(Source):
    """The counters less those of a window ago, by the counter's field and, for a histogram, the bucket's upper bound.

    Buckets are not cumulative, and those without an increase are left out. Outcomes have a metric of their own.
    """

    def samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        """One per sum, and one per bucket; none where no earlier counters are known."""
        if snapshot.counters is None or snapshot.earlier is None:
            return
        more = snapshot.counters.since(snapshot.earlier)
        for name in _SUMS:
            yield Sample(float(getattr(more, name)), (name, ""))
        depths: dict[int, int] = {}
        for depth, forks in more.fork_depths.items():
            bound = FORK_DEPTH_BOUNDS[min(bisect_left(FORK_DEPTH_BOUNDS, depth), len(FORK_DEPTH_BOUNDS) - 1)]
            depths[bound] = depths.get(bound, 0) + forks
        for bound, forks in sorted(depths.items()):
            if forks:
                yield Sample(float(forks), (_FORKS, str(bound)))
        for text, turns in zip(_BOUNDS, more.interarrival_buckets, strict=True):
            if turns:
                yield Sample(float(turns), (_TURNS, text))

    def read(self, samples: Sequence[Sample], fields: Fields) -> None:
        """The counters of a window ago, from those that were read before."""
        found = {sample.labels: sample.value for sample in samples}
        for name in _SUMS:
            fields[f"earlier.{name}"] = fields.get(f"counters.{name}", 0) - found.get((name, ""), 0)
        fields[f"earlier.{_FORKS}"] = {
            depth: forks - found.get((_FORKS, str(depth)), 0)
            for depth, forks in fields.get(f"counters.{_FORKS}", {}).items()
        }
        turns = fields.get(f"counters.{_TURNS}", [0] * len(_BOUNDS))
        fields[f"earlier.{_TURNS}"] = [
            number - found.get((_TURNS, text), 0) for text, number in zip(_BOUNDS, turns, strict=True)
        ]


_BOUNDS = (*map(str, INTERARRIVAL_BOUNDS), UNLIMITED)

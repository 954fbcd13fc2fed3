"""Which engine a series of a page belongs to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from vllm_hitratio_plugin.snapshot import Snapshot, VllmCounters


class Identity(NamedTuple):
    """One engine of a page: series that differ in any label are of different engines."""

    model_name: str
    engine: str
    labels: tuple[tuple[str, str], ...] = ()
    """What others (Ray, a federation, a relabelling) added, as (name, value) by name."""

    @classmethod
    def of(cls, engine: Snapshot | VllmCounters) -> Identity:
        """That of an engine which was read."""
        return cls(engine.model_name, engine.engine, tuple(sorted(engine.labels.items())))


def identity_of(labels: Mapping[str, str], own: Collection[str] = ()) -> Identity:
    """The engine of a series; ``own`` are the labels that its metric has of itself."""
    apart = ("model_name", "engine", *own)
    others = tuple(sorted((name, value) for name, value in labels.items() if name not in apart))
    return Identity(labels.get("model_name", ""), labels.get("engine", "0"), others)

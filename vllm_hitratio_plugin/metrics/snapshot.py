"""What one engine says of itself at one moment, and how it is handed from the engine to the API servers."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from vllm_hitratio_plugin.estimate import Counters, Estimate


@dataclass(frozen=True)
class VllmCounters:
    """What vLLM's own metrics say of one engine's prefix cache, each None where its page does not say it."""

    model_name: str
    engine: str
    caching: bool | None = None
    block_size: int | None = None
    capacity_blocks: int | None = None
    queries: float | None = None
    """Prompt tokens looked up since the start."""
    hits: float | None = None
    """Of them, found."""
    preemptions: float | None = None


#: Everything that can be wrong, each a label value of ``hitratio_degraded``.
DEGRADATIONS = (
    "prefix_caching_off",
    "not_modelled",
    "settings",
    "hook",
    "overflow",
    "workload",
    "fit",
    "snapshot",
    "exporter",
)


@dataclass
class Snapshot:
    """State of one engine. ``counters`` and ``estimate`` are None where nothing is recorded, never zeros."""

    model_name: str
    engine: str
    version: str
    vllm_version: str
    unhashed: str
    wall_time: float
    """Unix seconds when it was taken."""
    capacity_blocks: int
    block_size: int
    block_bytes: int | None
    modelled: bool
    counters: Counters | None = None
    estimate: Estimate | None = None
    fit_time: float | None = None
    """Unix seconds of the last successful fit."""
    fit_seconds: float | None = None
    held_blocks: float | None = None
    """Blocks in use at the last admission."""
    index_blocks: int | None = None
    index_bytes: int | None = None
    last_reset: float | None = None
    """Unix seconds of the last cache reset."""
    longest_prompt: int | None = None
    """Tokens of the longest request allowed, its answer included."""
    earlier: Counters | None = None
    """The counters about one window ago, or as old as there are: what rates are taken from."""
    earlier_seconds: float | None = None
    """How long ago that was, s."""
    flow: dict[str, Any] | None = None
    """Sums of the current window (``metrics.flow_record``), at most 32 kB: what what-ifs are computed from."""
    vllm: VllmCounters | None = None
    """vLLM's own figures, where both came from one page."""
    degraded: dict[str, str] = field(default_factory=dict)
    """Active degradations and the words that explain them."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what is inside is shared with the snapshot, and to be left as it is."""
        return {name: vars(value) if is_dataclass(value) else value for name, value in vars(self).items()}

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """The inverse of :meth:`to_json`; raises ValueError, KeyError or TypeError on anything else.

        What is not known is passed over: ``findings``, which the exporter adds and which follow from the rest, and what
        a later version may add.
        """
        data: dict[str, Any] = _known(cls, json.loads(text))
        for name in ("counters", "earlier"):
            data[name] = _counters(data.get(name))
        estimate = data.pop("estimate")
        if estimate is not None:
            for curve in ("curve", "shadow_curve", "survival"):
                estimate[curve] = {int(size): value for size, value in estimate[curve].items()}
            estimate = Estimate(**_known(Estimate, estimate))
        vllm = data.pop("vllm", None)
        return cls(**data, estimate=estimate, vllm=None if vllm is None else VllmCounters(**_known(VllmCounters, vllm)))


def _counters(data: dict[str, Any] | None) -> Counters | None:
    if data is None:
        return None
    for curve in ("curve_hit_blocks", "shadow_curve_hit_blocks", "fork_depths"):
        data[curve] = {int(key): value for key, value in data[curve].items()}
    return Counters(**_known(Counters, data))


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def write(folder: str, snapshot: Snapshot) -> None:
    """Put the snapshot into the folder, whole or not at all; raises OSError."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".engine-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(snapshot.to_json())
        os.replace(temporary, os.path.join(folder, f"engine-{snapshot.engine}.json"))
    except BaseException:
        os.unlink(temporary)
        raise


def read_all(folder: str) -> list[Snapshot]:
    """The snapshots of all engines of this server, by engine; what can't be read is left out."""
    snapshots = []
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("engine-") and name.endswith(".json"))
    except OSError:
        return []
    for name in names:
        try:
            with open(os.path.join(folder, name)) as file:
                snapshots.append(Snapshot.from_json(file.read()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return snapshots

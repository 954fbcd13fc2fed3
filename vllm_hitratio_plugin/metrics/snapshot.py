"""What one engine says of itself at one moment, and how it is handed from the engine to the API servers."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from typing import Any

from vllm_hitratio_plugin.estimate import Counters, Estimate

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
    degraded: dict[str, str] = field(default_factory=dict)
    """Active degradations and the words that explain them."""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """The inverse of :meth:`to_json`; raises ValueError, KeyError or TypeError on anything else."""
        data: dict[str, Any] = json.loads(text)
        counters, estimate = data.pop("counters"), data.pop("estimate")
        if counters is not None:
            for curve in ("curve_hit_blocks", "shadow_curve_hit_blocks", "fork_depths"):
                counters[curve] = {int(size): hits for size, hits in counters[curve].items()}
            counters = Counters(**counters)
        if estimate is not None:
            for curve in ("curve", "shadow_curve"):
                estimate[curve] = {int(size): ratio for size, ratio in estimate[curve].items()}
            estimate = Estimate(**estimate)
        return cls(**data, counters=counters, estimate=estimate)


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
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return snapshots

"""The folder in which engines leave their snapshots for the API servers of the same node."""

from __future__ import annotations

import logging
import os
import tempfile

from vllm_hitratio_plugin.failures import where
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.snapshot_json import from_json, to_json

logger = logging.getLogger("vllm.hitratio")

#: Files whose failure was logged.
_logged: set[str] = set()


def write(folder: str, snapshot: Snapshot) -> None:
    """Put the snapshot into the folder, whole or not at all.

    Raises:
        OSError: the folder can't be written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".engine-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(to_json(snapshot))
        os.replace(temporary, os.path.join(folder, f"engine-{snapshot.engine}.json"))
    except BaseException:
        os.unlink(temporary)
        raise


def read_all(folder: str) -> list[Snapshot]:
    """The snapshots of all engines of this server, by engine; what can't be read is logged once and left out."""
    snapshots = []
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("engine-") and name.endswith(".json"))
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                snapshots.append(from_json(file.read()))
        except FileNotFoundError:
            continue  # its engine has just ended
        except (OSError, ValueError) as error:
            if path not in _logged:
                _logged.add(path)
                logger.warning("hitratio: no metrics of one engine on this page, %s: %s", name, where(error))
    return snapshots

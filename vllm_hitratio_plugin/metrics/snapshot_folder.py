"""The folder in which engines leave their snapshots for the API servers of the same node."""

from __future__ import annotations

import logging
import os
import tempfile
import time

from vllm_hitratio_plugin.failures import where
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.snapshot_json import from_json, to_json

logger = logging.getLogger("vllm.hitratio")

#: Files whose failure was logged.
_logged: set[str] = set()

#: Its presence says that an API server reads the folder.
_READER = "reader"


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
        os.replace(temporary, _file(folder, snapshot.engine))
    except BaseException:
        os.unlink(temporary)
        raise


def remove(folder: str, engine: str) -> None:
    """Take an engine's snapshot away.

    Raises:
        OSError: there is none, or the folder can't be written.
    """
    os.unlink(_file(folder, engine))


def mark_read(folder: str) -> None:
    """Tell the engines that an API server shows what they leave here.

    Raises:
        OSError: the folder can't be written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, _READER), "wb"):
        pass


def is_read(folder: str) -> bool:
    """Whether an API server shows what is left here."""
    return os.path.exists(os.path.join(folder, _READER))


def read_all(folder: str, oldest: float | None = None) -> list[Snapshot]:
    """The snapshots of all engines of this server, by engine; what can't be read is logged once and left out.

    Args:
        folder: Where they are.
        oldest: Seconds. A snapshot beyond that age is of an engine that has ended, or hangs; None: there is no limit.
    """
    snapshots = []
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("engine-") and name.endswith(".json"))
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                snapshot = from_json(file.read())
            if oldest is None or time.time() - snapshot.wall_time <= oldest:
                snapshots.append(snapshot)
        except FileNotFoundError:
            continue  # its engine has just ended
        except (OSError, ValueError) as error:
            if path not in _logged:
                _logged.add(path)
                logger.warning("hitratio: no metrics of one engine on this page, %s: %s", name, where(error))
    return snapshots


def _file(folder: str, engine: str) -> str:
    return os.path.join(folder, f"engine-{engine}.json")

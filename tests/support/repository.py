"""Where the repository is, and how a process that a test starts finds it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python_path(*folders: Path) -> str:
    """A PYTHONPATH with the repository (``tests.support``, ``examples``, the package itself) before the folders."""
    return os.pathsep.join(map(str, (ROOT, *folders)))

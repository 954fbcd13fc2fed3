"""Which tests belong to ``make test-engines`` alone: the engines' matrix, several servers at once, every Python."""

from __future__ import annotations

import os

ALL_ENGINES = os.environ.get("HITRATIO_ENGINES", "") not in ("", "0")
"""Whether this run is one of ``make test-engines``."""

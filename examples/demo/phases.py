"""How long each phase of the demo took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Seconds by phase, in order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block; its time is kept even if it fails."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - began

    @property
    def total(self) -> float:
        """Seconds since the first phase could begin."""
        return time.monotonic() - self._began

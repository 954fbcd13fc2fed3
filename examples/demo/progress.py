"""One line that changes on a terminal, and an occasional new line where the output goes to a file."""

import sys
import time

TERMINAL_PERIOD = 0.5
FILE_PERIOD = 15.0


class Progress:
    """Shows the latest state of something that takes a while."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._due = 0.0
        self._width = 0

    def show(self, text: str) -> None:
        """Replace the line, unless the last one is too recent."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + (TERMINAL_PERIOD if self._terminal else FILE_PERIOD)
            self._write(text, "" if self._terminal else "\n")

    def done(self, text: str) -> None:
        """Replace the line for good."""
        self._due = 0.0
        self._write(text, "\n")

    def _write(self, text: str, end: str) -> None:
        sys.stdout.write((f"\r{text.ljust(self._width)}" if self._terminal else text) + end)
        sys.stdout.flush()
        self._width = 0 if end else len(text)

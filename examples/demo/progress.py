"""One line that changes on a terminal; now and then a new line where the output goes to a file."""

import sys
import time
from typing import TextIO

TERMINAL_PERIOD = 0.5
FILE_PERIOD = 15.0


class Progress:
    """Shows the latest state of something that takes a while."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._shown_at = -float("inf")
        self._width = 0

    def show(self, text: str, *, now: bool = False) -> None:
        """Replace the line; too soon after the last one it is dropped, unless it must be shown `now`."""
        clock = time.monotonic()
        if not now and clock - self._shown_at < (TERMINAL_PERIOD if self._terminal else FILE_PERIOD):
            return
        self._shown_at = clock
        if self._terminal:
            self._stream.write(f"\r{text.ljust(self._width)}")
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def done(self, text: str) -> None:
        """The last word: stays, and ends the line."""
        self._stream.write((f"\r{text.ljust(self._width)}" if self._terminal else text) + "\n")
        self._stream.flush()
        self._width = 0
        self._shown_at = -float("inf")

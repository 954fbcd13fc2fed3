"""Ctrl-C, and SIGTERM and SIGHUP like it: what was started is stopped before the process ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupted(KeyboardInterrupt):
    """A signal asked to stop. A KeyboardInterrupt, because asyncio lets only that and SystemExit out of a task."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


_holds = 0
_pending: int | None = None
_stopping = False


def _handle(number: int, frame: FrameType | None) -> None:
    global _pending, _stopping
    if _stopping:
        return
    if _holds:
        _pending = number
        return
    _stopping = True
    raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first of the stopping signals into :class:`Interrupted` in the main thread.

    Later ones change nothing: stopping is under way, and takes a bounded time.
    """
    global _pending, _stopping
    _pending, _stopping = None, False
    before = {number: signal.signal(number, _handle) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Nothing interrupts the block: a signal is acted upon at its end.

    For the moments between starting a process and knowing it, and while it is being stopped; keep them short.
    """
    global _holds, _pending, _stopping
    _holds += 1
    try:
        yield
    finally:
        _holds -= 1
        if _pending is not None and not _holds:
            number, _pending, _stopping = _pending, None, True
            raise Interrupted(number)

"""Ctrl-C, SIGTERM and SIGHUP end the demo in the same way: with its servers."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked to stop. A KeyboardInterrupt, because asyncio lets only that and SystemExit out of a task."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first of these signals into :class:`Interrupted` in the main thread, and ignore later ones.

    Stopping takes a bounded time, and a second Ctrl-C would only disturb it.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Counters of the last window, to take rates from."""

from __future__ import annotations

from collections import deque

from vllm_hitratio_plugin.snapshot import Counters

#: Copies per window, and copies kept: as many as the longest window holds, and one more.
_PER_WINDOW = 20
_KEPT = 6 * _PER_WINDOW + 1


class CounterHistory:
    """Copies of the counters, spaced by a twentieth of the least window.

    Args:
        window_seconds: The least window.
    """

    def __init__(self, window_seconds: float) -> None:
        self._spacing = window_seconds / _PER_WINDOW
        self._copies: deque[tuple[float, Counters]] = deque(maxlen=_KEPT)

    def window_ago(self, now: float, counters: Counters, seconds: float) -> tuple[Counters | None, float | None]:
        """The youngest copy that is ``seconds`` old, or the oldest there is, and its age in s; then keep ``counters``.

        ``now`` is in seconds of a monotonic clock. Both are None at the first call, and after the counters restarted.
        """
        copies = self._copies
        if copies and copies[-1][1].requests > counters.requests:
            copies.clear()
        before = next((copy for copy in reversed(copies) if now - copy[0] >= seconds), None)
        if before is None and copies:
            before = copies[0]
        if not copies or now - copies[-1][0] >= self._spacing:
            copies.append((now, counters))
        return (None, None) if before is None else (before[1], now - before[0])

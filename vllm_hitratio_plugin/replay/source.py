"""Where the prompts of a replay come from: a recorded trace, or turn lengths that are put on a clock."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from vllm_hitratio_plugin.replay.arrivals import parse_arrivals
from vllm_hitratio_plugin.replay.formats.source import Format, read_source
from vllm_hitratio_plugin.replay.generator import Traffic, draw_conversations, generate
from vllm_hitratio_plugin.replay.law import parse_duration, parse_law
from vllm_hitratio_plugin.replay.trace import Trace

_ARRIVALS, _INTERARRIVAL = "1.5", "135"
_BLOCK_SIZE = 128
_CONVERSATIONS = 6000


@dataclass(frozen=True)
class Clock:
    """What gives times to turn lengths; None is the paper's setting."""

    arrivals: str | None = None
    """Conversation starts per second, as :func:`parse_arrivals` reads them; 1.5."""
    interarrival: str | None = None
    """Law of the seconds between prompts; exponential with a mean of 135."""
    response_time: str | None = None
    """Law of the seconds until an answer is complete; 0."""
    conversations: int | None = None
    """How many are drawn; 6,000."""
    warmup: int | None = None
    """How many of them come before the measurement; a sixth."""


class TimedTrace(NamedTuple):
    """A trace, and what is to be measured of it."""

    trace: Trace
    window: tuple[float, float] | None
    """First and last second of the measurement; None: the whole trace."""


class TraceSource:
    """A file of prompts.

    Args:
        path: Of a recorded trace or of turn lengths; '-' is standard input.
        kind: Its format, or 'auto'.
        block_size: Tokens per block of the trace; None: the trace's own, or 128.
        clock: Times for turn lengths.
        seed: Of everything drawn.

    Raises:
        ValueError: the file can't be read, or ``clock`` says something about recorded times; one sentence.
    """

    def __init__(
        self,
        path: str,
        kind: Format = "auto",
        *,
        block_size: int | None = None,
        clock: Clock | None = None,
        seed: int = 0,
    ) -> None:
        clock = clock or Clock()
        self._path = path
        self._block_size = block_size
        self._seed = seed
        source = read_source(path, kind, block_size)
        self._recorded = source if isinstance(source, Trace) else None
        if isinstance(source, Trace):
            for item in fields(clock):
                if getattr(clock, item.name) is not None:
                    option = item.name.replace("_", "-")
                    raise ValueError(f"--{option} is for turn lengths; {source.name} has its own times")
            return
        count = clock.conversations or _CONVERSATIONS
        self._warmup = count // 6 if clock.warmup is None else clock.warmup
        self._conversations = draw_conversations(source, count, seed)
        self._traffic = Traffic(
            parse_arrivals(clock.arrivals or _ARRIVALS),
            parse_law(clock.interarrival or _INTERARRIVAL),
            parse_duration(clock.response_time),
        )

    def trace(self, block_size: int | None = None) -> TimedTrace:
        """The prompts in blocks of ``block_size`` tokens; None is the size of the source.

        Raises:
            ValueError: recorded blocks can't be made into blocks of that size, or no conversation is left to measure.
        """
        if self._recorded is not None:
            return TimedTrace(self._recorded if block_size is None else self._recorded.reblocked(block_size), None)
        generated = generate(
            self._conversations,
            self._traffic,
            block_size=block_size or self._block_size or _BLOCK_SIZE,
            seed=self._seed,
            warmup=self._warmup,
            name=self._path,
        )
        return TimedTrace(generated.trace, generated.window)

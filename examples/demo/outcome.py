"""What one trial showed: a server, or a pool in virtual time, of one capacity under the load."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from vllm_hitratio_plugin.snapshot import OUTCOMES, REUSE_TIME, Counters, Estimate, VllmCounters


@dataclass(frozen=True)
class Look:
    """The plugin's figures at one moment of the load."""

    time: float
    """When the plugin computed them, seconds from the start of the load."""
    estimate: Estimate
    counters: Counters
    """Since the start."""
    window_blocks: float
    """Prompt blocks of the window that the estimate is over."""

    @property
    def begin(self) -> float:
        """Begin of that window."""
        return self.time - self.estimate.window_seconds

    @property
    def predicted(self) -> float | None:
        """The headline prediction."""
        return self.estimate.predicted.get(REUSE_TIME)


@dataclass(frozen=True)
class Sample:
    """What the measured window held."""

    seconds: float
    requests: int
    conversations: int
    """Started in it."""
    requests_per_second: float
    planned_per_second: float
    failures: int = 0
    """Of the whole load."""
    first_failure: str | None = None
    late: int = 0
    """Prompts of the whole load that were sent more than 0.1 s after their time."""
    latency_p50: float | None = None
    """Seconds."""
    latency_p99: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The plugin's figures over the measured window, and what they are compared with."""

    capacity_blocks: int
    sample: Sample
    window: Look
    """The first look that covers the measured window."""
    looks: Sequence[Look]
    """All of them, in order."""
    final: Counters
    """After all answers had come."""
    block_bytes: int | None = None
    vllm: VllmCounters | None = None
    """vLLM's own counters at that time; None in virtual time."""
    exporter_agrees: bool | None = None
    """Whether the engine's own exporter says the same as the server's /metrics; None where there is none."""
    degraded: Sequence[str] = ()
    """Reasons why the plugin reports itself as degraded."""

    @property
    def estimate(self) -> Estimate:
        return self.window.estimate

    @property
    def recommended_blocks(self) -> int | None:
        recommended = self.estimate.recommended_blocks
        return None if recommended is None else ceil(recommended)

    @property
    def recommended_bytes(self) -> int | None:
        blocks = self.recommended_blocks
        return None if blocks is None or self.block_bytes is None else blocks * self.block_bytes


def window_look(looks: Sequence[Look], end: float) -> Look | None:
    """The first look whose fit covers the measured window up to `end`, and little more."""
    return next((look for look in looks if look.time >= end), None)


def by_outcome(blocks: Sequence[int]) -> dict[str, int]:
    """Prompt blocks by outcome and reason, "hit/local" for instance; empty where nothing was measured."""
    return {"/".join(names): count for names, count in zip(OUTCOMES, blocks, strict=bool(blocks))}

"""Every number of the demo, in one place."""

from dataclasses import dataclass
from pathlib import Path

BLOCK_SIZE = 32
"""Tokens a block: the smallest that vLLM's CPU attention takes."""

MAX_PROMPT_TOKENS = 4096
"""A conversation ends before a turn whose prompt would be longer."""

MAX_MESSAGE_TOKENS = 2048
"""Longer messages are cut there, as in the published ShareGPT files."""


@dataclass(frozen=True)
class Settings:
    """What the command line can change."""

    output: Path = Path("build/demo")
    seed: int = 1
    conversations_per_second: float = 3.4
    """λ0; times 4.47 turns makes some 15 requests per second, a fifth of what two quiet cores serve."""

    think_seconds: float = 6.0
    """Mean interarrival time μ of a conversation's turns: a person's minutes scaled to seconds."""

    warmup_seconds: float = 40.0
    """Nearly seven mean think times, in which the load writes the first cache four times over, the second one twice."""

    measured_seconds: float = 140.0
    """The plugin's window: 476 conversations start and 2,130 requests arrive in it, on average."""

    capacity_blocks: int = 850
    """N of the first server: about half of what could be reused is."""

    target: float = 0.5
    """Hit ratio that the plugin is asked to recommend a capacity for."""

    interval_seconds: float = 2.0
    """Between two fits of the plugin, and so between two looks at its metrics."""

    hitratio_port: int = 9577
    """Where the engine's own exporter listens; another free port is taken where this one is not."""

    least_requests: int = 1500
    least_conversations: int = 400

    @property
    def tail_seconds(self) -> float:
        """The load goes on after the measured window, so that the last fit sees nothing but load."""
        return 3 * self.interval_seconds

    @property
    def load_seconds(self) -> float:
        return self.warmup_seconds + self.measured_seconds + self.tail_seconds

"""Every number of the demo, in one place."""

from dataclasses import dataclass
from pathlib import Path

#: Tokens per block: the smallest that vLLM's CPU attention takes.
BLOCK_SIZE = 32

#: A conversation ends before a turn whose prompt would be longer.
MAX_PROMPT_TOKENS = 4096

#: Longer messages are cut there, as in the published ShareGPT files.
MAX_MESSAGE_TOKENS = 2048


@dataclass(frozen=True)
class Settings:
    """What the command line can change."""

    output: Path = Path("build/demo")
    seed: int = 1
    conversations_per_second: float = 4.0
    """λ0; times 4.47 turns makes 18 requests per second, a quarter of what two quiet cores serve."""
    think_seconds: float = 5.0
    """Mean interarrival time μ of a conversation's turns: a person's minutes scaled to seconds."""
    warmup_seconds: float = 25.0
    """Five mean think times, in which the load writes the first cache three times over, the second one once."""
    measured_seconds: float = 112.0
    """The plugin's window: on average 448 conversations start and 2,000 requests arrive in it."""
    capacity_blocks: int = 850
    """N of the first server: it reuses about half of what could be reused."""
    target: float = 0.5
    """Hit ratio that the plugin is asked to recommend a capacity for."""
    interval_seconds: float = 2.0
    """Between two fits of the plugin, and so between two looks at its figures."""
    hitratio_port: int = 9577
    """Where the engine's own exporter listens; if it is taken, another free port is used."""
    least_requests: int = 1500
    least_conversations: int = 400

    @property
    def end_seconds(self) -> float:
        """End of the measured window, from the start of the load."""
        return self.warmup_seconds + self.measured_seconds

    @property
    def load_seconds(self) -> float:
        """The load goes on after the measured window, so that the last fit sees nothing but load."""
        return self.end_seconds + 2 * self.interval_seconds

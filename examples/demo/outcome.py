"""What one trial showed: a server, or a pool in virtual time, of one capacity under the load."""

from dataclasses import dataclass, field

ESTIMATORS = ("reuse_time", "mean_field")
"""The headline prediction first."""


@dataclass(frozen=True)
class Point:
    """One look at the plugin's window during the load; None: not measured (yet)."""

    time: float
    """Seconds from the start of the load."""

    observed: float | None
    predicted: float | None
    """reuse_time."""

    divergence_stderr: float | None
    """Standard error of observed - predicted."""

    prompt_blocks: float | None
    """Counters: blocks so far, of prompts, hit, and expected to hit (reuse_time)."""

    hit_blocks: float | None
    predicted_hit_blocks: float | None


@dataclass(frozen=True)
class Sample:
    """What the measured window held."""

    seconds: float
    requests: int
    conversations: int
    """Started in it."""

    requests_per_second: float
    planned_per_second: float
    failures: int
    """Of the whole load."""

    first_failure: str | None
    late: int
    """Prompts of the whole load that were sent more than 0.1 s after their time."""

    latency_p50: float | None
    """Seconds."""

    latency_p99: float | None


@dataclass(frozen=True)
class Outcome:
    """The plugin's figures over the measured window, and what they are compared with.

    Capacities and workloads in blocks.
    """

    capacity_blocks: int
    sample: Sample
    observed: float | None
    predicted: dict[str, float | None]
    predicted_stderr: dict[str, float | None]
    gap: float | None
    divergence_stderr: float | None
    ceiling: float | None
    characteristic_time: float | None
    arrival_rate: float | None
    history_workload: float | None
    reusable_workload: float | None
    lifetime_blocks: float | None
    turns: float | None
    target: float
    target_reachable: bool | None
    recommended_blocks: int | None
    recommended_bytes: float | None
    curve: dict[int, float]
    """Hit ratio by capacity, over the measured window."""

    plugin_hit_tokens: float | None
    """Counters, after all answers had come."""

    plugin_prompt_tokens: float | None
    engine_hit_tokens: float | None
    """vLLM's own; None in virtual time."""

    engine_prompt_tokens: float | None
    exporter_agrees: bool | None
    """Whether the engine's own exporter says the same as the server's /metrics; None where there is none."""

    degraded: list[str]
    """Reasons that the plugin gives for not being whole."""

    series: list[Point] = field(repr=False)

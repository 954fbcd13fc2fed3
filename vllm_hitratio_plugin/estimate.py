"""What one look at the window says: the figures that are exported, each None where it was not measured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from vllm_hitratio_plugin.workload import ledger as ledgers

#: The two predictions, by the name that their metrics carry.
MEAN_FIELD = "mean_field"
REUSE_TIME = "reuse_time"
ESTIMATORS = (REUSE_TIME, MEAN_FIELD)


@dataclass(frozen=True)
class Estimate:
    """Estimates over the current window; symbols are the paper's."""

    time: float
    """Seconds, the monitor's clock."""
    window_seconds: float
    requests: int
    reuses: int
    """Runs of reusable blocks seen: how many idle gaps the curve rests on."""
    ready: bool
    """Whether the window holds enough for a figure; if not, the ratios below are None."""
    capacity_blocks: int
    """N."""
    pinned_blocks: float | None
    """Mean blocks in use at an admission."""
    observed: float | None
    """h over the window's prompts, blocks."""
    observed_stderr: float | None
    predicted: dict[str, float | None]
    """ĥ by estimator."""
    predicted_stderr: dict[str, float | None]
    gap: float | None
    """Observed minus predicted (reuse_time)."""
    gap_stderr: float | None
    """Standard error of that difference, paired (MODEL section 5)."""
    shadow: float | None
    """Hit ratio of an exact LRU of N blocks on the same prompts; needs no stationarity."""
    model_gap: float | None
    """Predicted minus shadow: the model's own error."""
    model_gap_stderr: float | None
    engine_gap: float | None
    """Observed minus shadow: what the engine does beside LRU."""
    engine_gap_stderr: float | None
    ceiling: float | None
    """Share of prompt blocks seen before: no capacity hits more."""
    arrival_rate: float | None
    """λ0, conversations per second."""
    history_workload: float | None
    """A_R, blocks."""
    reusable_workload: float | None
    """A_H^hash, blocks."""
    lifetime_blocks: float | None
    """E[B], blocks."""
    turns: float | None
    """E[M]."""
    characteristic_time: float | None
    """T_C, s: how long an unused block survives; needs traffic, but no reuse."""
    target: float | None
    reachable: bool | None
    recommended_blocks: float | None
    """Capacity that reaches the target; None without a target or out of reach."""
    curve: dict[int, float] = field(default_factory=dict)
    """Predicted hit ratio by capacity in blocks."""
    shadow_curve: dict[int, float] = field(default_factory=dict)
    """Hit ratio of exact LRUs by capacity in blocks."""
    survival: dict[int, float | None] = field(default_factory=dict)
    """T_C, s, by capacity in blocks; None where nothing displaces what is cached, empty without traffic enough."""
    ledger: list[int] = field(default_factory=list)
    """Blocks of the window's prompts by ``workload.ledger.COLUMNS``."""
    drift: dict[str, float] = field(default_factory=dict)
    """Change of the estimated hit ratio since the window before, in flow form, by the factor it comes from
    (``model.drift.FACTORS``); empty until two windows are full."""
    drifted: list[str] = field(default_factory=list)
    """The factors that changed beyond their standard errors, the one that explains most first."""


@dataclass
class Counters:
    """Sums since the start, aligned with each other: all advance together when the monitor is refreshed."""

    requests: int = 0
    prompt_blocks: int = 0
    hit_blocks: float = 0.0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    external_hit_tokens: int = 0
    conversations: int = 0
    short_prompts: int = 0
    """Prompts too short for any block to hit: no more than a block and its last token."""
    forks: int = 0
    fork_depths: dict[int, int] = field(default_factory=dict)
    """Prompts that left a history where others go on differently, by the position of the first block that differs; the
    deepest counted as ``monitor.FORK_DEPTHS``."""
    later_turns: int = 0
    """Prompts whose client says that they are no first turn."""
    turns_elsewhere: int = 0
    """Of them, those whose previous turn was not seen here."""
    uncounted: int = 0
    resumed: int = 0
    """Preempted requests that came back."""
    resets: int = 0
    predicted_hit_blocks: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ESTIMATORS, 0.0))
    curve_hit_blocks: dict[int, float] = field(default_factory=dict)
    ceiling_hit_blocks: float = 0.0
    shadow_hit_blocks: float = 0.0
    shadow_curve_hit_blocks: dict[int, float] = field(default_factory=dict)
    ledger: list[int] = field(default_factory=lambda: ledgers.empty().tolist())
    stale_blocks: int = 0
    """Blocks an answer left in the cache that the conversation's next prompt did not ask for."""
    interarrival_buckets: list[int] = field(default_factory=list)
    """Turns per bucket of ``monitor.INTERARRIVAL_BOUNDS``, the last one beyond all bounds; not cumulative."""
    interarrival_seconds: float = 0.0

    def copy(self) -> Counters:
        """The sums as they are now."""
        inside: dict[str, Any] = {
            name: value.copy() for name, value in vars(self).items() if isinstance(value, (dict, list))
        }
        return replace(self, **inside)

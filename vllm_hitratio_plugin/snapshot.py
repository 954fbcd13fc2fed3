"""What one engine says of itself at one moment: the one contract between monitor, metrics, findings and plans.

A snapshot travels from the engine to the API servers and out of the exporter as JSON. Reading it is typed: a field of
the wrong type is refused by name, a field that is not known (of a later version) is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from vllm_hitratio_plugin.model.traffic import TrafficSums

#: The two predictions, by the name that their metrics carry.
MEAN_FIELD = "mean_field"
REUSE_TIME = "reuse_time"
ESTIMATORS = (REUSE_TIME, MEAN_FIELD)

#: (outcome, reason) of prompt blocks, in the order of every list of them (docs/model.md#outcomes-of-a-prompt-block).
OUTCOMES = (
    ("hit", "local"),
    ("hit", "external"),
    ("partial", "tail"),
    ("partial", "dropped"),
    ("compulsory", "new"),
    ("compulsory", "diverged"),
    ("compulsory", "namespace"),
    ("capacity", "evicted"),
    ("in_flight", "prefill"),
    ("unexplained", "missing"),
    ("unexplained", "reset"),
)

#: Upper bounds of the histogram of interarrival times, s.
INTERARRIVAL_BOUNDS = (0.5, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 900, 1800, 3600, 7200)

#: Upper bounds of the histogram of fork depths, blocks: exact where a fork costs most.
FORK_DEPTH_BOUNDS = (*range(1, 17), 24, 32, 48, 64, 96, 128, 192, 256)

#: Forks at this block or deeper are counted together.
FORK_DEPTHS = FORK_DEPTH_BOUNDS[-1]

#: Everything that can be wrong, each a label value of ``hitratio_degraded``.
DEGRADATIONS = (
    "prefix_caching_off",
    "not_modelled",
    "settings",
    "hook",
    "overflow",
    "workload",
    "fit",
    "snapshot",
    "exporter",
    "collector",
)


@dataclass(frozen=True)
class Estimate:
    """Estimates over the current window; symbols are the paper's. None where a figure was not measured."""

    time: float
    """Seconds, the monitor's clock."""
    window_seconds: float
    requests: int
    reuses: int
    """Runs of reusable blocks seen: how many reuse times the curve rests on."""
    ready: bool
    """Whether the window holds enough for a figure; if not, the ratios below are None."""
    capacity_blocks: int
    """N."""
    in_use_blocks: float | None = None
    """Mean blocks in use at an admission."""
    observed: float | None = None
    """h over the window's requests, in blocks."""
    observed_stderr: float | None = None
    predicted: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(ESTIMATORS))
    """ĥ by estimator."""
    predicted_stderr: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(ESTIMATORS))
    divergence: float | None = None
    """Observed minus predicted (reuse_time)."""
    divergence_stderr: float | None = None
    """Standard error of that difference, paired (docs/model.md#windows-and-confidence)."""
    shadow: float | None = None
    """Hit ratio of an exact LRU of N blocks on the same requests; needs no stationarity."""
    model_divergence: float | None = None
    """Predicted minus shadow: the model's own error."""
    model_divergence_stderr: float | None = None
    engine_divergence: float | None = None
    """Observed minus shadow: what the engine does other than LRU."""
    engine_divergence_stderr: float | None = None
    ceiling: float | None = None
    """Infinite-cache hit ratio: the share of prompt blocks seen before, which no capacity exceeds."""
    ceiling_stderr: float | None = None
    arrival_rate: float | None = None
    """λ0, conversations per second."""
    history_workload: float | None = None
    """A_R, blocks."""
    reusable_workload: float | None = None
    """A_H^hash, blocks."""
    lifetime_blocks: float | None = None
    """E[B], blocks."""
    turns: float | None = None
    """E[M]."""
    characteristic_time: float | None = None
    """T_C, s: how long an unused block stays cached; needs traffic, but no reuse. None also where nothing displaces
    it."""
    target: float | None = None
    reachable: bool | None = None
    recommended_blocks: float | None = None
    """Capacity that reaches the target; None without a target, or where no capacity reaches it."""
    curve: dict[int, float] = field(default_factory=dict)
    """Predicted hit ratio by capacity in blocks."""
    shadow_curve: dict[int, float] = field(default_factory=dict)
    """Hit ratio of exact LRUs by capacity in blocks."""
    characteristic_times: dict[int, float | None] = field(default_factory=dict)
    """T_C, s, by capacity in blocks; None where nothing displaces what is cached, empty without enough traffic."""
    outcomes: list[int] = field(default_factory=list)
    """Blocks of the window's prompts by ``OUTCOMES``."""
    drift_contributions: dict[str, float] = field(default_factory=dict)
    """Change of the estimated hit ratio since the window before, in flow form, by the factor it comes from
    (``model.drift.FACTORS``); empty until two windows are full."""
    drift_significant: list[str] = field(default_factory=list)
    """The factors that changed beyond their standard errors, the one that explains most first."""

    def __post_init__(self) -> None:
        _expect("outcomes", self.outcomes, len(OUTCOMES), 0)


@dataclass
class Counters:
    """Sums since the start, aligned with each other: all advance together when the monitor is refreshed."""

    requests: int = 0
    prompt_blocks: int | float = 0
    hit_blocks: float = 0.0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    external_hit_tokens: int = 0
    conversations: int = 0
    short_prompts: int = 0
    """Prompts too short for any block to hit: no more than a block and its last token."""
    forks: int = 0
    fork_depths: dict[int, int] = field(default_factory=dict)
    """Requests that left a history where others go on differently, by the position of the first block that differs; the
    deepest are counted as ``FORK_DEPTHS``."""
    follow_up_turns: int = 0
    """Requests that declare a turn number above 1."""
    unmatched_turns: int = 0
    """Of them, those whose previous turn was not seen here."""
    uncounted: int = 0
    skipped: int = 0
    """Requests that skip the cache's lookup by design (prompt_logprobs, pooling by token)."""
    resumed: int = 0
    """Preempted requests that came back."""
    resets: int = 0
    predicted_hit_blocks: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ESTIMATORS, 0.0))
    curve_hit_blocks: dict[int, float] = field(default_factory=dict)
    ceiling_hit_blocks: float = 0.0
    shadow_hit_blocks: float = 0.0
    shadow_curve_hit_blocks: dict[int, float] = field(default_factory=dict)
    outcomes: list[int] = field(default_factory=lambda: [0] * len(OUTCOMES))
    """Prompt blocks by ``OUTCOMES``."""
    unreused_history_blocks: int = 0
    """Blocks that a turn left in the cache and the conversation's next prompt did not ask for."""
    written_blocks: float = 0.0
    """Blocks of content new to the cache: what prompts brought beyond the blocks seen before, and answers."""
    interarrival_buckets: list[int] = field(default_factory=lambda: [0] * (len(INTERARRIVAL_BOUNDS) + 1))
    """Turns per bucket of ``INTERARRIVAL_BOUNDS``, the last one beyond all bounds; not cumulative."""
    interarrival_seconds: float = 0.0

    def __post_init__(self) -> None:
        _expect("outcomes", self.outcomes, len(OUTCOMES))
        _expect("interarrival_buckets", self.interarrival_buckets, len(INTERARRIVAL_BOUNDS) + 1)

    def copy(self) -> Counters:
        """The sums as they are now."""
        inside: dict[str, Any] = {
            name: value.copy() for name, value in vars(self).items() if isinstance(value, (dict, list))
        }
        return replace(self, **inside)

    def add(self, other: Counters) -> None:
        """Add the sums of another stretch."""
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, dict):
                for key, value in theirs.items():
                    mine[key] = mine.get(key, 0) + value
            elif isinstance(mine, list):
                setattr(self, item.name, [old + new for old, new in zip(mine, theirs, strict=True)])
            elif theirs:
                setattr(self, item.name, mine + theirs)

    def since(self, before: Counters) -> Counters:
        """Increases of every counter since an earlier copy."""
        values: dict[str, Any] = {}
        for item in fields(self):
            new, old = getattr(self, item.name), getattr(before, item.name)
            if isinstance(new, dict):
                values[item.name] = {key: value - old.get(key, 0) for key, value in new.items()}
            elif isinstance(new, list):
                values[item.name] = [value - (old[index] if index < len(old) else 0) for index, value in enumerate(new)]
            else:
                values[item.name] = new - old
        return Counters(**values)


@dataclass(frozen=True)
class VllmCounters:
    """What vLLM's own metrics say of one engine's prefix cache; None where its page does not say it."""

    model_name: str
    engine: str
    caching: bool | None = None
    block_size: int | None = None
    capacity_blocks: int | None = None
    queries: float | None = None
    """Prompt tokens looked up since the start."""
    hits: float | None = None
    """Of them, found in the local cache."""
    external_queries: float | None = None
    """Tokens asked of a KV connector since the start."""
    external_hits: float | None = None
    """Of them, loaded."""
    preemptions: float | None = None
    capacity_tokens: int | None = None
    """Tokens that the cache holds, as vLLM states it: where layers are in groups, not blocks times block size."""
    labels: dict[str, str] = field(default_factory=dict)
    """As ``Snapshot.labels``."""


@dataclass(frozen=True)
class Snapshot:
    """State of one engine. ``counters`` and ``estimate`` are None where nothing is recorded, never zeros."""

    model_name: str
    engine: str
    version: str
    vllm_version: str
    unhashed: str
    """"tail" or "head": where a released block without a hash queues (docs/model.md#unhashed-blocks)."""
    wall_time: float
    """Unix seconds when it was taken."""
    capacity_blocks: int
    block_size: int
    """Tokens per block."""
    block_bytes: int | None
    """Bytes per block on one worker."""
    modelled: bool
    counters: Counters | None = None
    estimate: Estimate | None = None
    fit_time: float | None = None
    """Unix seconds of the last successful fit."""
    fit_seconds: float | None = None
    index_blocks: int | None = None
    index_bytes: int | None = None
    last_reset: float | None = None
    """Unix seconds of the last cache reset."""
    max_model_len: int | None = None
    """Tokens of the longest request allowed, its answer included."""
    match_unit: int | None = None
    """Tokens per unit in which prompts hit, where less than a block (``--prefix-match-unit``); None: they hit in
    blocks. With it, ratios are of tokens: hit and prompt blocks are tokens over ``block_size``, not rounded."""
    earlier: Counters | None = None
    """The counters about one window ago, or as old as there are: what rates are taken from."""
    earlier_seconds: float | None = None
    """How long ago that was, s."""
    sums: TrafficSums | None = None
    """Sums of the current window: what what-ifs are computed from."""
    exporter: str | None = None
    """URL of the engine's own exporter, with the address that it is bound to; None while there is none."""
    vllm: VllmCounters | None = None
    """vLLM's own figures, where both came from one page."""
    degraded: dict[str, str] = field(default_factory=dict)
    """Active degradations and the words that explain them."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of its series beyond model_name and engine, where it was read from a page that has some: such as Ray's
    ReplicaId. They are a part of the engine's identity."""


def _expect(name: str, values: list[int], *lengths: int) -> None:
    if len(values) not in lengths:
        raise ValueError(f"{name} has {len(values)} numbers where {lengths[0]} are expected")

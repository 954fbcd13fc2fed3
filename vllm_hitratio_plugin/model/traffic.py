"""The sums that the estimators rest on: additive over time slots, engines and partitions (docs/model.md#flow-form)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Reuse times are binned 4 % wide from a millisecond on, run lengths by a factor of √2. Each bin keeps exact sums, so
#: binning only blurs the joint law within a bin.
_TIME_FLOOR_S = 1e-3
_TIME_STEP = float(np.log(1.04))
_LENGTH_STEP = float(np.log(2.0) / 2)
_LENGTH_BINS = 64

#: Bin numbers below this are looked up in a table: reuse times of up to 30 years, at all lengths.
_TABLE = 1 << 16

#: Bins of prompt lengths per factor of two.
LENGTHS_PER_OCTAVE = 4

Table = TypeVar("Table", bound="_Table")


def _nothing() -> Array:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class _Table:
    """Columns of equal length; the first one, the bin or lag, is ascending and whole, the others are sums."""

    def __post_init__(self) -> None:
        if len({len(column) for column in vars(self).values()}) > 1:
            raise ValueError("the columns of a table are of different lengths")

    @classmethod
    def merged(cls: type[Table], tables: Sequence[Table]) -> Table:
        """One table with the rows of equal bins added up."""
        key, *names = cls.__dataclass_fields__
        found, places = _distinct(np.concatenate([getattr(table, key) for table in tables]))
        columns: dict[str, Any] = {key: found}
        for name in names:
            column = np.concatenate([getattr(table, name) for table in tables])
            columns[name] = np.bincount(places, weights=column, minlength=len(found))
        return cls(**columns)


@dataclass(frozen=True, eq=False)
class RunTable(_Table):
    """Reused runs of blocks by reuse time and length; (n,) each. Memory: 40 bytes per row, at most 600 × 64 rows."""

    bins: Array = field(default_factory=_nothing)
    """Number of the (reuse time, length) bin."""
    runs: Array = field(default_factory=_nothing)
    """How many runs were looked up."""
    blocks: Array = field(default_factory=_nothing)
    """Their blocks."""
    reuse_seconds: Array = field(default_factory=_nothing)
    """Σ reuse time · blocks, s·blocks; 0 exactly where a request still used the run at the lookup."""
    own_blocks: Array = field(default_factory=_nothing)
    """Of the blocks, those that the same conversation used last."""

    @classmethod
    def of(cls, reuse_times: Array, lengths: Array, own: Array | float = 0.0, counts: Array | float = 1.0) -> RunTable:
        """Runs of ``lengths`` blocks reused after ``reuse_times`` seconds, both (n,), each counted ``counts`` times.

        ``own`` is the share of them that the same conversation used last.
        """
        counted = np.broadcast_to(counts, reuse_times.shape) > 0
        if not counted.all():
            # Kinds without a run would divide 0 by 0.
            reuse_times, lengths = reuse_times[counted], lengths[counted]
            own, counts = np.broadcast_to(own, counted.shape)[counted], np.broadcast_to(counts, counted.shape)[counted]
        length_bin = np.clip(np.floor(np.log(lengths) / _LENGTH_STEP), 0, _LENGTH_BINS - 1)
        bins = _time_bin(reuse_times) * _LENGTH_BINS + length_bin
        blocks = counts * lengths
        return cls(bins, counts * np.ones(len(reuse_times)), blocks, reuse_times * blocks, own * blocks)

    @cached_property
    def reuse_times(self) -> Array:
        """Mean reuse time of each row, s."""
        return self.reuse_seconds / self.blocks

    @cached_property
    def lengths(self) -> Array:
        """Mean blocks per run of each row."""
        return self.blocks / self.runs

    @cached_property
    def count(self) -> float:
        """Runs in all rows."""
        return float(self.runs.sum())

    @cached_property
    def total_blocks(self) -> float:
        """Blocks in all rows."""
        return float(self.blocks.sum())

    @cached_property
    def tail_integral(self) -> tuple[Array, Array]:
        """∫_0^y of the blocks reused after more than u seconds, du: knots y in s, values in s·blocks."""
        order = np.argsort(self.reuse_times, kind="stable")
        times, blocks = self.reuse_times[order], self.blocks[order]
        values = np.cumsum(blocks * times) + times * (float(blocks.sum()) - np.cumsum(blocks))
        return np.concatenate([[0.0], times]), np.concatenate([[0.0], values])

    def coarsened(self, rows: int) -> RunTable:
        """The same sums in at most ``rows`` rows: neighbours in length are joined first, then neighbours in time."""
        table, by_length = self, True
        times, lengths = table.bins // _LENGTH_BINS, table.bins % _LENGTH_BINS
        while len(table.bins) > rows:
            if by_length:
                lengths = lengths // 2
            else:
                # Reuse time 0, a run in use, stays apart.
                times = np.where(times > 0, 1 + (times - 1) // 2, 0)
            by_length = not by_length
            table = RunTable.merged(
                [
                    RunTable(
                        times * _LENGTH_BINS + lengths, table.runs, table.blocks, table.reuse_seconds, table.own_blocks
                    )
                ]
            )
            times, lengths = table.bins // _LENGTH_BINS, table.bins % _LENGTH_BINS
        return table


@dataclass(frozen=True, eq=False)
class InterarrivalTable(_Table):
    """Interarrival times of the requests of a conversation, W; (n,) each."""

    bins: Array = field(default_factory=_nothing)
    turns: Array = field(default_factory=_nothing)
    """How many follow-up turns."""
    seconds: Array = field(default_factory=_nothing)
    """Σ W, s."""

    @classmethod
    def of(cls, seconds: Array) -> InterarrivalTable:
        """One follow-up turn per interarrival time, s, (n,)."""
        return cls(_time_bin(seconds), np.ones(len(seconds)), seconds)


@dataclass(frozen=True, eq=False)
class LagTable(_Table):
    """Reusable blocks that the conversation's k-th last prompt had already; (n,) each."""

    lags: Array = field(default_factory=_nothing)
    """k, from 1."""
    blocks: Array = field(default_factory=_nothing)

    @classmethod
    def of(cls, blocks: Sequence[float]) -> LagTable:
        """Blocks at the lags 1, 2, ..."""
        return cls(np.arange(1, len(blocks) + 1).astype(float), np.asarray(blocks, dtype=float))


@dataclass(frozen=True, eq=False)
class LengthTable(_Table):
    """Prompts by length; (n,) each."""

    bins: Array = field(default_factory=_nothing)
    """k for 2^{k/4} to 2^{(k+1)/4} tokens."""
    requests: Array = field(default_factory=_nothing)
    tokens: Array = field(default_factory=_nothing)

    @classmethod
    def of(cls, tokens: Array) -> LengthTable:
        """One request per prompt of that many tokens, at least 1, (n,)."""
        return cls(np.floor(LENGTHS_PER_OCTAVE * np.log2(tokens)), np.ones(len(tokens)), tokens)


@dataclass
class TrafficSums:
    """Additive sums of one stretch of traffic: adding two gives the sums of both stretches.

    Example:
        >>> hour = TrafficSums(seconds=3600.0, requests=100.0, prompt_blocks=2000.0)
        >>> (hour + hour).prompt_blocks
        4000.0
    """

    seconds: float = 0.0
    requests: float = 0.0
    """Admitted requests."""
    prompt_blocks: float = 0.0
    """Σ R, blocks: ρ times seconds."""
    hit_blocks: float | None = 0.0
    """Observed hits, blocks; None where hits were not observed."""
    written_blocks: float = 0.0
    """Newly written blocks that displace cached ones: ν times seconds (docs/model.md#written-blocks)."""
    in_use_blocks: float = 0.0
    """Σ over the requests of the blocks in use just before each."""
    first_turns: float = 0.0
    """Requests that start a conversation: λ0 times seconds."""
    grown_blocks: float = 0.0
    """Σ (R_j - R_{j-1}), blocks: λ0 E[B] times seconds, the paper's accounting."""
    returning_blocks: float = 0.0
    """Reusable blocks of follow-up turns: λ0 A_H^hash times seconds."""
    runs: RunTable = field(default_factory=RunTable)
    interarrivals: InterarrivalTable = field(default_factory=InterarrivalTable)
    lags: LagTable = field(default_factory=LagTable)
    lengths: LengthTable = field(default_factory=LengthTable)

    def __add__(self, other: TrafficSums) -> TrafficSums:
        return TrafficSums.total([self, other])

    @classmethod
    def total(cls, parts: Sequence[TrafficSums], runs: bool = True) -> TrafficSums:
        """The sums of all parts; zeros for no parts; without the table of ``runs`` where it is not needed."""
        values: dict[str, Any] = {}
        if not parts:
            return cls()
        for item in fields(cls):
            column = [getattr(part, item.name) for part in parts]
            if not isinstance(column[0], _Table):
                values[item.name] = None if None in column else float(sum(column))
            elif runs or item.name != "runs":
                values[item.name] = type(column[0]).merged(column)
        return cls(**values)

    @property
    def reuse_runs(self) -> float:
        """Runs of reusable blocks seen: how many reuse times the curve rests on."""
        return self.runs.count

    @property
    def reusable_blocks(self) -> float:
        """Blocks of those runs: a(∞) times seconds, runs in use included."""
        return self.runs.total_blocks

    @property
    def mean_in_use_blocks(self) -> float:
        """Blocks in use at an admission, the mean over the requests; 0 without requests."""
        return self.in_use_blocks / self.requests if self.requests else 0.0

    def add(self, table: _Table) -> None:
        """Add the rows of one table to the table of its kind."""
        name = _NAMES[type(table)]
        setattr(self, name, table.merged([getattr(self, name), table]))


_NAMES = {RunTable: "runs", InterarrivalTable: "interarrivals", LagTable: "lags", LengthTable: "lengths"}


def _time_bin(seconds: Array) -> Array:
    # Time 0 (a request still uses the blocks) has a bin of its own: such a run is never displaced.
    bins = (seconds > 0.0).astype(float)
    long = seconds > _TIME_FLOOR_S
    bins[long] = 2.0 + np.floor(np.log(seconds[long] / _TIME_FLOOR_S) / _TIME_STEP)
    return bins


def _distinct(keys: Array) -> tuple[Array, NDArray[np.intp]]:
    """The distinct keys, ascending, and which of them each one is: by a table where numpy would sort."""
    size = int(keys.max()) + 1 if len(keys) else _TABLE + 1
    if size > _TABLE:
        return np.unique(keys, return_inverse=True)
    places = keys.astype(np.intp)
    present = np.zeros(size, dtype=bool)
    present[places] = True
    found = np.flatnonzero(present)
    table = np.empty(size, dtype=np.intp)
    table[found] = np.arange(len(found))
    return found.astype(float), table[places]

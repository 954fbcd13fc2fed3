"""Prompts waiting to be counted: an admission appends what it alone knows, the rest is computed many at a time."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vllm_hitratio_plugin.workload.conversation import LAGS

Column = NDArray[np.float64]


class Row(NamedTuple):
    """What an admission appends for its prompt, here as columns of shape (n,); in blocks unless said otherwise."""

    tokens: Column
    """L, tokens."""
    known: Column
    """Seen before and not lost."""
    lost: Column
    """Seen before the last reset of the cache."""
    hit_tokens: Column
    """What the engine returned, tokens; NaN where nobody looked."""
    external_tokens: Column
    """Loaded by a KV connector, tokens."""
    in_use: Column
    """Held by other requests just before."""
    blank: Column
    """Free and without content."""
    runs: Column
    """Runs of reusable blocks, a number."""
    own_gap: Column
    """Since the conversation let go, s."""
    previous: Column
    """Full blocks of the conversation's previous prompt; -1 where it starts, -2 where neither an id nor a block
    is left to find it by."""
    before: Column
    """All blocks of that prompt; 0 where it starts."""
    cached: Column
    """What it left in the cache; 0 where it starts."""
    remembered: Column
    """How many earlier prompts are remembered, a number."""
    namespace: Column
    """Content that is cached under another adapter or salt."""


class Pending:
    """What was appended since the last count: rows, then runs and sizes of earlier prompts in the order of the rows."""

    __slots__ = ("ahead", "gaps", "lengths", "rows", "sizes")

    def __init__(self) -> None:
        self.rows: list[float] = []
        """The values of one :class:`Row` after another."""
        self.gaps: list[float] = []
        """Idle gap of each run, s; 0 where it is held."""
        self.lengths: list[int] = []
        """Its blocks."""
        self.ahead: list[int] = []
        """Blocks ahead of it in the recency stack, those in use and blank ones not included; -1 where held."""
        self.sizes: list[int] = []
        """Full blocks of a returning conversation's earlier prompts, latest first."""


class Prompts(NamedTuple):
    """One column a quantity, one row a prompt; all of shape (n,), in blocks unless said otherwise."""

    tokens: Column
    """L, tokens."""
    prompt: Column
    """R, the partly filled block included."""
    full: Column
    """Full blocks."""
    most: Column
    """What a lookup could return: not the partly filled block, nor the last token's (MODEL 4.3)."""
    known: Column
    """Seen before and not lost, of all full blocks."""
    reusable: Column
    """Of ``known``, what a lookup may return."""
    lost: Column
    """Seen before the last reset of the cache."""
    hit_tokens: Column
    """What the engine returned, tokens; NaN where nobody looked."""
    external_tokens: Column
    """Loaded by a KV connector, tokens."""
    shadow: Column
    """What an exact LRU of the same capacity would have returned."""
    in_use: Column
    """Held by other requests just before."""
    first: Column
    """1 where a conversation starts, else 0."""
    grown: Column
    """R_j - R_{j-1}, or R_1."""
    returning: Column
    """Reusable blocks of the conversation's previous prompt; 0 where it starts."""
    previous: Column
    """Full blocks of the conversation's previous prompt; 0 where it starts."""
    stale: Column
    """Left in the cache by the previous answer, and not asked for."""
    namespace: Column
    """Content that is cached under another adapter or salt."""


class Counted(NamedTuple):
    """A batch, with all that follows from it."""

    prompts: Prompts
    gaps: Column
    """Of each run of reusable blocks, s, (m,)."""
    lengths: Column
    """Blocks of each run, (m,)."""
    own: Column
    """1 where nobody else used the run since its conversation let go, or it is held; else 0; (m,)."""
    shadow: Column
    """Hits of exact LRUs at each capacity asked about, blocks; (k,)."""
    lags: list[float]
    """Reusable blocks that the conversation's 1st, 2nd, ... last prompt had already."""


def count(pending: Pending, capacities: Column, block_size: int, dropped_blocks: int) -> Counted:
    """Work out what was appended, at least one row.

    Args:
        pending: Not changed.
        capacities: Blocks, (k,); the first one is the cache's own.
        block_size: Tokens a block.
        dropped_blocks: Blocks that every hit gives up.
    """
    row = Row(*_numbers(pending.rows).reshape(-1, len(Row._fields)).T)
    tokens, known = row.tokens, row.known
    most = (tokens - 1) // block_size
    reusable = np.maximum(np.minimum(known, most) - dropped_blocks, 0)
    prompt = np.ceil(tokens / block_size)

    gaps, lengths, ahead = _numbers(pending.gaps), _numbers(pending.lengths), _numbers(pending.ahead)
    asking = np.repeat(np.arange(len(tokens)), row.runs.astype(int))
    # A run that a request still holds is in a cache of any size.
    depths = np.where(ahead < 0, -np.inf, ahead + (row.in_use + row.blank)[asking])
    kept = np.clip(capacities[:, None] - depths, 0.0, lengths)

    counts = row.remembered.astype(int)
    lag = np.arange(len(pending.sizes)) - np.repeat(np.cumsum(counts) - counts, counts)
    reused = np.minimum(_numbers(pending.sizes), np.repeat(reusable, counts))

    prompts = Prompts(
        tokens=tokens,
        prompt=prompt,
        full=tokens // block_size,
        most=most,
        known=known,
        reusable=reusable,
        lost=row.lost,
        hit_tokens=row.hit_tokens,
        external_tokens=row.external_tokens,
        shadow=np.bincount(asking, weights=kept[0], minlength=len(tokens)).astype(float),
        in_use=row.in_use,
        # A conversation without an id starts, for us, at the first prompt that leaves a block: its next one would
        # start it again. Only then do λ0 and E[B] count it once.
        first=(row.previous == -1).astype(float),
        grown=np.where(row.previous == -2, 0, np.maximum(prompt - row.before, 0)),
        returning=np.minimum(np.maximum(row.previous, 0), reusable),
        previous=np.maximum(row.previous, 0),
        stale=np.maximum(row.cached - known - row.lost, 0),
        namespace=row.namespace,
    )
    return Counted(
        prompts,
        gaps,
        lengths,
        own=np.where(gaps == 0.0, 1.0, gaps >= row.own_gap[asking]),
        shadow=kept.sum(axis=1),
        lags=np.bincount(lag, weights=reused, minlength=LAGS).tolist(),
    )


def _numbers(values: Sequence[float]) -> Column:
    # Half the time that numpy takes to look at each of them.
    return np.frombuffer(struct.pack(f"{len(values)}d", *values))


def sums(prompts: Prompts) -> dict[str, float]:
    """Each column's sum, by name."""
    return {name: float(column.sum()) for name, column in zip(Prompts._fields, prompts, strict=True)}

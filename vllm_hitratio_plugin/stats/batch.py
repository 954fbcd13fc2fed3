"""Requests waiting to be counted: an admission appends what it alone knows, the rest is computed many at a time."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.index.conversation import LAGS, Conversation
from vllm_hitratio_plugin.index.match import Match
from vllm_hitratio_plugin.model.traffic import Array


class _Row(NamedTuple):
    """What an admission appends, here as columns of shape (n,); in blocks unless said otherwise."""

    tokens: Array
    """L, tokens."""
    known: Array
    """Seen before and not lost."""
    lost: Array
    """Seen before the last reset of the cache."""
    hit_tokens: Array
    """What the engine returned, tokens; NaN where it was not observed."""
    external_tokens: Array
    """Loaded by a KV connector, tokens."""
    in_use: Array
    """Used by other requests just before."""
    empty: Array
    """Free and without content."""
    runs: Array
    """Runs of reusable blocks, a number."""
    own_time: Array
    """Since the conversation released its blocks, s."""
    previous: Array
    """Full blocks of the conversation's previous prompt; -1 where it starts, -2 where it starts with neither an id nor
    a block to find it by again."""
    before: Array
    """All blocks of that prompt; 0 where it starts."""
    cached: Array
    """What it left in the cache; 0 where it starts."""
    interarrival: Array
    """Since the conversation's previous prompt, s; NaN where it starts."""
    remembered: Array
    """How many earlier prompts are remembered, a number."""
    duplicated: Array
    """Content that is cached under another adapter or salt."""
    in_flight: Array
    """Leading blocks that a prompt whose prefill is under way has too, as far as a lookup could return them."""
    forked: Array
    """1 where the prompt left a remembered run in its middle, else 0."""
    fork_depth: Array
    """Blocks shared with others before it left their history; -1 where it did not."""
    unmatched: Array
    """For a declared turn above 1: 1 where the turn before was not seen, else 0; -1 for all others."""


class Requests(NamedTuple):
    """One column per quantity, one row per request; all of shape (n,), in blocks unless said otherwise."""

    tokens: Array
    """L, tokens."""
    prompt: Array
    """R, the partly filled block included."""
    full: Array
    """Full blocks."""
    short: Array
    """1 where it is too short for any hit, else 0."""
    most: Array
    """What a lookup could return: neither the partly filled block nor that of the last token."""
    known: Array
    """Seen before and not lost, of all full blocks."""
    reusable: Array
    """Of ``known``, what a lookup may return."""
    lost: Array
    """Seen before the last reset of the cache."""
    hit_tokens: Array
    """What the engine returned, tokens; NaN where it was not observed."""
    external_tokens: Array
    """Loaded by a KV connector, tokens."""
    shadow: Array
    """What an exact LRU of the same capacity would have returned."""
    in_use: Array
    """Used by other requests just before."""
    first: Array
    """1 where a conversation starts, else 0."""
    grown: Array
    """R_j - R_{j-1}, or R_1."""
    returning: Array
    """Reusable blocks of the conversation's previous prompt; 0 where it starts."""
    previous: Array
    """Full blocks of the conversation's previous prompt; 0 where it starts."""
    unreused: Array
    """Left in the cache by the previous turn, and not asked for."""
    duplicated: Array
    """Content that is cached under another adapter or salt."""
    in_flight: Array
    """Leading blocks that a prompt whose prefill is under way has too, as far as a lookup could return them."""
    forked: Array
    """1 where the prompt left a remembered run in its middle, else 0."""
    fork_depth: Array
    """Blocks shared with others before it left their history; -1 where it did not."""
    unmatched: Array
    """For a declared turn above 1: 1 where the turn before was not seen, else 0; -1 for all others."""


class Counted(NamedTuple):
    """A batch, with all that follows from it."""

    requests: Requests
    reuse_times: Array
    """Of each run of reusable blocks, s, (m,)."""
    run_lengths: Array
    """Blocks of each run, (m,)."""
    own: Array
    """1 where no other conversation used the run since its own released it, or it is in use; else 0; (m,)."""
    interarrivals: Array
    """Of the follow-up turns, s, (f,)."""
    shadow: Array
    """Hits of exact LRUs at each capacity asked about, blocks; (k,)."""
    lags: list[float]
    """Reusable blocks that the conversation's 1st, 2nd, ... last prompt had already."""


class Batch:
    """What was appended since the last count: rows, then runs and sizes of earlier prompts in the order of the rows."""

    __slots__ = ("_distances", "_lengths", "_reuse_times", "_rows", "_sizes")

    def __init__(self) -> None:
        self._rows: list[float] = []
        self._reuse_times: list[float] = []
        self._lengths: list[int] = []
        self._distances: list[int] = []
        # Full blocks of a returning conversation's earlier prompts, latest first.
        self._sizes: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, access: Access, match: Match, conversation: Conversation, full: int) -> None:
        """Append an admitted request, before its conversation's turn begins."""
        self._reuse_times += match.reuse_times
        self._lengths += match.lengths
        self._distances += match.distances
        time, hit_tokens, turn = access.time, access.hit_tokens, access.declared_turn
        if conversation.turns:
            previous, interarrival = conversation.blocks, time - conversation.arrival
            self._sizes += conversation.sizes
            remembered = len(conversation.sizes)
        else:
            previous = -1 if full or access.conversation is not None else -2
            interarrival, remembered = math.nan, 0
        # In the order of _Row: a row of names would take as long as all the rest.
        self._rows += (
            access.tokens,
            match.known,
            match.lost,
            math.nan if hit_tokens is None else hit_tokens,
            access.external_tokens,
            match.in_use_blocks,
            match.empty_blocks,
            len(match.lengths),
            time - conversation.released,
            previous,
            conversation.prompt_blocks,
            conversation.cached,
            interarrival,
            remembered,
            match.duplicated_blocks,
            match.in_flight_blocks,
            match.forked,
            match.known + match.lost if match.branched else -1,
            # A turn that is sent again has its own number seen here.
            -1 if turn is None or turn < 2 else conversation.declared_turn not in (turn - 1, turn),
        )

    def count(self, capacities: Array, block_size: int, dropped_blocks: int, match_unit: int | None = None) -> Counted:
        """Work out what was appended, at least one row.

        Args:
            capacities: Blocks, (k,); the first one is the cache's own.
            block_size: Tokens per block.
            dropped_blocks: Blocks that every hit gives up.
            match_unit: Tokens per unit in which prompts hit, where that is less than a block: then a partly filled
                block counts by its tokens.
        """
        row = _Row(*_numbers(self._rows).reshape(-1, len(_Row._fields)).T)
        tokens, known = row.tokens, row.known
        most = (tokens - 1) // block_size
        reusable = np.maximum(np.minimum(known, most) - dropped_blocks, 0)
        prompt = tokens / block_size if match_unit else np.ceil(tokens / block_size)

        times, lengths, distances = _numbers(self._reuse_times), _numbers(self._lengths), _numbers(self._distances)
        asking = np.repeat(np.arange(len(tokens)), row.runs.astype(int))
        # A run that a request still uses is in a cache of any size.
        depths = np.where(distances < 0, -np.inf, distances + (row.in_use + row.empty)[asking])
        kept = np.clip(capacities[:, None] - depths, 0.0, lengths)

        counts = row.remembered.astype(int)
        lag = np.arange(len(self._sizes)) - np.repeat(np.cumsum(counts) - counts, counts)
        reused = np.minimum(_numbers(self._sizes), np.repeat(reusable, counts))

        requests = Requests(
            tokens=tokens,
            prompt=prompt,
            full=tokens // block_size,
            short=(tokens <= (match_unit or block_size)).astype(float),
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
            unreused=np.maximum(row.cached - known - row.lost, 0),
            duplicated=row.duplicated,
            in_flight=row.in_flight,
            forked=row.forked,
            fork_depth=row.fork_depth,
            unmatched=row.unmatched,
        )
        return Counted(
            requests,
            times,
            lengths,
            own=np.where(times == 0.0, 1.0, times >= row.own_time[asking]),
            interarrivals=np.maximum(row.interarrival[~np.isnan(row.interarrival)], 0.0),
            shadow=kept.sum(axis=1),
            lags=np.bincount(lag, weights=reused, minlength=LAGS).tolist(),
        )


def _numbers(values: Sequence[float]) -> Array:
    # Half the time that numpy takes to look at each of them.
    return np.frombuffer(struct.pack(f"{len(values)}d", *values))

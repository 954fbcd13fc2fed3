"""Prompts waiting to be counted: the admission only appends a row, the sums are taken many rows at a time."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]


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


WIDTH = len(Prompts._fields)


def take(rows: array[float]) -> Prompts:
    """The waiting rows (``WIDTH`` values each, in the order of :class:`Prompts`) as columns; empties them."""
    table = np.array(rows).reshape(-1, WIDTH)
    del rows[:]
    return Prompts(*table.T)


def sums(prompts: Prompts) -> dict[str, float]:
    """Each column's sum, by name."""
    return {name: float(column.sum()) for name, column in zip(Prompts._fields, prompts, strict=True)}

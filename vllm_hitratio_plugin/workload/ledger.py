"""Every prompt block has one fate (MODEL section 6): what became of it, and why."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vllm_hitratio_plugin.workload.batch import Prompts

#: (fate, reason) of each column of a ledger. The fates add up to the prompt blocks, always.
COLUMNS = (
    ("hit", "local"),
    ("partial", "tail"),
    ("partial", "dropped"),
    ("cold", "new"),
    ("cold", "diverged"),
    ("cold", "namespace"),
    ("capacity", "evicted"),
    ("unexplained", "missing"),
    ("unexplained", "reset"),
)
FATES = ("hit", "cold", "partial", "capacity", "unexplained")

Ledger = NDArray[np.int64]


def empty() -> Ledger:
    """A ledger of no prompts."""
    return np.zeros(len(COLUMNS), dtype=np.int64)


def tally(prompts: Prompts, block_size: int) -> Ledger:
    """Blocks by ``COLUMNS`` of the prompts whose hits were observed.

    hit: what the engine returned. partial: the block that is not full or holds the last token, and what speculative
    decoding drops of a hit. capacity: what the exact LRU lost, too. unexplained: what the exact LRU still had, and what
    a reset took. cold: the rest, never seen before; of it, where the conversation's history changed (diverged), and
    what is cached under another adapter or salt (namespace).
    """
    seen = ~np.isnan(prompts.hit_tokens)
    hit = np.minimum(np.where(seen, prompts.hit_tokens, 0) // block_size, prompts.most)
    covered = np.maximum(prompts.reusable, hit)
    evicted = np.maximum(prompts.reusable - np.maximum(hit, np.floor(prompts.shadow)), 0)
    missing = covered - hit - evicted
    dropped = np.maximum(np.minimum(prompts.known, prompts.most) - covered, 0)
    rest = prompts.most - covered - dropped
    tail = prompts.prompt - prompts.most
    reset = np.minimum(prompts.lost, rest)
    rest = rest - reset
    diverged = np.clip(np.minimum(prompts.previous, prompts.most) - prompts.known - prompts.lost, 0, rest)
    rest = rest - diverged
    namespace = np.minimum(prompts.namespace, rest)
    fates = (hit, tail, dropped, rest - namespace, diverged, namespace, evicted, missing, reset)
    return np.array([int(column[seen].sum()) for column in fates], dtype=np.int64)

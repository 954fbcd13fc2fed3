"""The miss breakdown: every prompt block has one outcome (docs/model.md#outcomes-of-a-prompt-block)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vllm_hitratio_plugin.snapshot import OUTCOMES
from vllm_hitratio_plugin.stats.batch import Requests

Outcomes = NDArray[np.int64]
"""Blocks by ``snapshot.OUTCOMES``; they add up to the prompt blocks."""


def none() -> Outcomes:
    """The outcomes of no requests."""
    return np.zeros(len(OUTCOMES), dtype=np.int64)


def outcomes_of(requests: Requests, block_size: int) -> Outcomes:
    """Blocks by outcome of the requests whose hits were observed.

    hit: what the engine returned, and behind it what a KV connector loaded, whatever the local cache did with it.
    partial: the block that is not full or holds the last token, and what speculative decoding drops of a hit.
    in_flight: what another request was still computing, or loading. capacity: what the exact LRU lost, too.
    unexplained: what the exact LRU still had, and what a reset took. compulsory: the rest, never seen before; of it,
    where the conversation's history changed (diverged), and what is cached under another adapter or salt (namespace).
    """
    seen = ~np.isnan(requests.hit_tokens)
    hit = np.minimum(np.where(seen, requests.hit_tokens, 0) // block_size, requests.most)
    tokens = np.where(seen, requests.hit_tokens, 0) + requests.external_tokens
    served = np.maximum(np.minimum(tokens // block_size, requests.most), hit)
    covered = np.maximum(np.maximum(requests.reusable, served), requests.in_flight)
    held = np.maximum(served, np.floor(requests.shadow))
    in_flight = np.maximum(requests.in_flight - held, 0)
    evicted = np.maximum(requests.reusable - np.maximum(held, requests.in_flight), 0)
    dropped = np.maximum(np.minimum(requests.known, requests.most) - covered, 0)
    rest = requests.most - covered - dropped
    once = requests.known + requests.lost
    reset = np.clip(once - np.maximum(requests.known, served), 0, np.minimum(requests.lost, rest))
    rest = rest - reset
    diverged = np.clip(np.minimum(requests.previous, requests.most) - np.maximum(once, served), 0, rest)
    rest = rest - diverged
    namespace = np.minimum(requests.duplicated, rest)
    blocks = {
        ("hit", "local"): hit,
        ("hit", "external"): served - hit,
        ("partial", "tail"): requests.prompt - requests.most,
        ("partial", "dropped"): dropped,
        ("compulsory", "new"): rest - namespace,
        ("compulsory", "diverged"): diverged,
        ("compulsory", "namespace"): namespace,
        ("capacity", "evicted"): evicted,
        ("in_flight", "prefill"): in_flight,
        ("unexplained", "missing"): covered - served - evicted - in_flight,
        ("unexplained", "reset"): reset,
    }
    return np.array([int(blocks[outcome][seen].sum()) for outcome in OUTCOMES], dtype=np.int64)

"""From records of vLLM's requests to what the monitor is told."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.engine.probe import CacheFacts
from vllm_hitratio_plugin.engine.recorder import Admission, Progress, Record, Release, Reset
from vllm_hitratio_plugin.monitor import Monitor

#: Keys under which clients send a conversation id in ``vllm_xargs``.
_ID_KEYS = ("session_id", "conversation_id")

#: Under which they may send the turn's number, from 1.
_TURN_KEY = "turn"

#: Marks a request object that was counted; none of vLLM's versions gives requests slots.
_ADMITTED = "_hitratio_admitted"

#: Ids are kept only as digests under a key that never leaves this process.
_SECRET = secrets.token_bytes(32)


def tell(monitor: Monitor, record: Record, facts: CacheFacts) -> None:
    """Tell the monitor what a record says; ValueError for a time that is none."""
    if not isinstance(record, Progress) and not math.isfinite(record.time):
        raise ValueError("the clock gave no time")
    if isinstance(record, Reset):
        monitor.reset(record.time)
        return
    request, in_use = record.request, facts.capacity_blocks - record.free_blocks
    if isinstance(record, Admission):
        monitor.admit(_access(record, in_use, facts))
    elif isinstance(record, Progress):
        monitor.progress(request.request_id, record.computed_tokens, in_use)
    else:
        ids = _block_ids(request, facts)
        monitor.release(record.time, request.request_id, ids, *_left_behind(record, len(ids), facts), in_use)


def _block_ids(request: Any, facts: CacheFacts) -> Sequence[Hashable]:
    """Chained ids of the request's full blocks: where each has several hashes, the last of them covers it all."""
    ids: Sequence[Hashable] = request.block_hashes
    hashes = facts.block_size // facts.hash_size
    return ids if hashes == 1 else ids[hashes - 1 :: hashes]


def _access(record: Admission, in_use: int, facts: CacheFacts) -> Access:
    """The access of an admission.

    A request is counted once: not when it comes back after a preemption, nor after a failed load from outside.
    """
    request = record.request
    state = vars(request)
    first = _ADMITTED not in state
    state[_ADMITTED] = True
    # What few requests have is looked for only where it can be.
    extra = getattr(request.sampling_params, "extra_args", None)
    named = extra or getattr(request, "session_id", None) is not None
    adapter, salt = request.lora_request, request.cache_salt
    skipped: bool = request.skip_reading_prefix_cache
    return Access(
        time=record.time,
        key=request.request_id,
        tokens=record.prompt_tokens,
        blocks=_block_ids(request, facts),
        hit_tokens=record.hit_tokens,
        external_tokens=record.external_tokens,
        computed_tokens=record.computed_tokens,
        in_use_blocks=in_use if in_use > 0 else 0,
        conversation=conversation_of(request) if named else None,
        counted=first and not record.preemptions and not skipped,
        resumed=record.preemptions > 0,
        skipped=skipped,
        namespace=None if adapter is None and salt is None else (getattr(adapter, "lora_int_id", None), salt),
        content=partial(_content_of, request, facts.block_size),
        declared_turn=turn_of(request) if extra else None,
    )


def turn_of(request: Any) -> int | None:
    """The turn number that the client sent with the conversation id; None for anything that is no turn number."""
    turn = (getattr(request.sampling_params, "extra_args", None) or {}).get(_TURN_KEY)
    return turn if isinstance(turn, int) and turn >= 1 else None


def _content_of(request: Any, block_size: int) -> list[Hashable]:
    """Chained hashes of the prompt's tokens alone; nothing for a prompt that is not made of tokens only."""
    tokens = request.prompt_token_ids
    if not tokens or getattr(request, "mm_features", None):
        return []
    ids: list[Hashable] = []
    chain = 0
    for start in range(0, len(tokens) - block_size + 1, block_size):
        chain = hash((chain, *tokens[start : start + block_size]))
        ids.append(chain)
    return ids


def _left_behind(record: Release, hashed: int, facts: CacheFacts) -> tuple[int, int]:
    """Full blocks that a released request has cached with its answer, 0 where it has none, and all blocks it used.

    How far a prompt came is known from its progress: tokens that a connector was to load count as computed from the
    start.
    """
    request, computed = record.request, record.computed_tokens
    tokens: int = request.num_tokens
    used = -(-computed // facts.block_size)
    if tokens <= request.num_prompt_tokens:
        return 0, used
    # The last sampled token has no KV.
    blocks = min(computed, tokens - 1) // facts.block_size
    return blocks if blocks < hashed else hashed, used


def conversation_of(request: Any) -> str | None:
    """The keyed digest of the id that the client sent, whatever it contains; None where it sent none."""
    name = getattr(request, "session_id", None)
    if name is None:
        extra = getattr(request.sampling_params, "extra_args", None)
        if not extra:
            return None
        for key in _ID_KEYS:
            name = extra.get(key)
            if name is not None:
                break
        else:
            return None
    if not isinstance(name, (str, int, float)) or name == "":
        return None
    text = str(name).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, key=_SECRET, digest_size=16).hexdigest()

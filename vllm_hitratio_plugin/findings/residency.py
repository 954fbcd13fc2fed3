"""From a flow into the cache to what of it is cached at a time: a flow is no share of a stock by itself."""

from __future__ import annotations

from vllm_hitratio_plugin.snapshot import OUTCOMES, Snapshot

_EVICTED = OUTCOMES.index(("capacity", "evicted"))


def share_of_cache(snapshot: Snapshot, blocks: float, seconds: float | None, total: float) -> float | None:
    """How much of the cache such blocks take at a time, 0 to 1; None where that is unknown.

    Args:
        snapshot: The engine.
        blocks: How many came within ``seconds``; None is a time that is not known.
        total: How many came since the start.
    """
    time = snapshot.estimate.characteristic_time if snapshot.estimate is not None else None
    if time is not None and seconds:
        # Little's law: each stays for T_C.
        return min(blocks * min(time / seconds, 1.0) / snapshot.capacity_blocks, 1.0)
    counters, known = snapshot.counters, snapshot.index_blocks
    if counters is None or known is None or known > snapshot.capacity_blocks:
        return None
    if counters.resets or counters.outcomes[_EVICTED]:
        return None
    # Nothing was evicted since the start, so all of them are still there.
    return min(total / snapshot.capacity_blocks, 1.0)

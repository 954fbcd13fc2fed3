"""The cache is too small for the reuse times of its traffic."""

import math
from collections.abc import Sequence

from vllm_hitratio_plugin.findings.by_capacity import capacity_surviving, knee_of, ratio_at
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import INTERARRIVAL_BOUNDS, Estimate, Snapshot
from vllm_hitratio_plugin.wording import capacity, count, duration, percent, points

_NOTABLE = 0.005
_BAD = 0.03
_PAUSE_S = 300.0
#: A window with less is worth knowing of, not acting on.
_LEAST_REQUESTS = 200


def capacity_bound(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the share of prompt blocks that an exact LRU of this capacity has evicted, too, and no tier served."""
    evicted, estimate = period.share("capacity"), snapshot.estimate
    lost = evicted
    if estimate is not None and estimate.observed is not None and estimate.ceiling is not None:
        # An engine that does better than LRU has lost less.
        lost = min(evicted, estimate.ceiling - estimate.observed)
    if lost < _NOTABLE:
        return None
    loaded = period.share("hit", "external")
    tier = loaded > 0 or (snapshot.counters is not None and snapshot.counters.external_hit_tokens > 0)
    evidence = [
        f"{percent(evicted)} of the prompt blocks {period.window} had been cached and were evicted before they were "
        f"needed again; an exact LRU of {count(snapshot.capacity_blocks, 'block')} evicts them, too. "
        f"{percent(period.share('hit', 'local'))} were local hits, {percent(period.share('compulsory'))} compulsory "
        f"misses, {percent(period.share('partial'))} partial blocks.",
    ]
    actions = []
    met, enough = False, estimate is not None and estimate.requests >= _LEAST_REQUESTS
    if estimate is not None:
        if estimate.observed is not None and estimate.ceiling is not None:
            evidence.append(
                f"The hit ratio is {percent(estimate.observed)} at "
                f"{capacity(snapshot.capacity_blocks, snapshot.block_bytes)}; the infinite-cache hit ratio (the "
                f"ceiling) is {percent(estimate.ceiling)}."
            )
        met = estimate.target is not None and estimate.observed is not None and estimate.observed >= estimate.target
        evidence += [*_characteristic_time(estimate, period, snapshot), *_target(estimate, snapshot)]
        actions += _knee(estimate, snapshot)
    if tier:
        evidence.append(
            f"A second tier served another {percent(loaded)} of the prompt blocks {period.window}. What it served is "
            "not part of the loss."
        )
    actions += [
        "Give KV more memory: --gpu-memory-utilization, --kv-cache-dtype fp8 or more workers"
        + (", or a larger second tier." if tier else ", or add a second tier in host memory."),
        "Send each replica less traffic and keep conversations on their replica: half the traffic has the effect of "
        "twice the blocks.",
    ]
    return Finding(
        rule="capacity-bound",
        severity="warning" if lost >= _BAD and enough and not met else "info",
        confidence=0.95,
        summary=f"The cache is too small for this traffic: eviction costs {points(lost)} of hit ratio"
        + (" that no second tier serves." if tier else "."),
        evidence=tuple(evidence),
        causes=(
            "Conversations pause for longer than an unused block stays cached.",
            "One-off prompts push histories out.",
            "The working set of active conversations is larger than the cache.",
        ),
        actions=tuple(actions),
        metrics=(
            'hitratio_prompt_blocks_by_outcome_total{outcome="capacity"}',
            "hitratio_curve_ratio",
            "hitratio_characteristic_time_seconds",
            "hitratio_recommended_capacity_blocks",
        ),
        loss=lost,
    )


def _characteristic_time(estimate: Estimate, period: Period, snapshot: Snapshot) -> list[str]:
    time = estimate.characteristic_time
    if time is None:
        return []
    words = f"An unused block stays cached for {duration(time)} (the characteristic time T_C)"
    longer = _longer(period.counters.interarrival_buckets, time)
    if longer is not None:
        words += f"; {percent(longer)} of the interarrival times within conversations are longer"
    sentences = [f"{words}."]
    if time < _PAUSE_S:
        words = f"A history that pauses for {_PAUSE_S:.0f} s is evicted"
        enough = capacity_surviving(estimate.characteristic_times, _PAUSE_S)
        if enough is not None:
            words += f"; {capacity(enough, snapshot.block_bytes)} would keep it"
        sentences.append(f"{words}.")
    return sentences


def _target(estimate: Estimate, snapshot: Snapshot) -> list[str]:
    if estimate.target is None or estimate.reachable is None:
        return []
    if estimate.recommended_blocks is None:
        return [f"No capacity reaches the target of {percent(estimate.target)}."]
    # As the metric shows it: a smaller whole number would not reach the target.
    needed = math.ceil(estimate.recommended_blocks)
    return [
        f"The target of {percent(estimate.target)} needs {capacity(needed, snapshot.block_bytes)}, "
        f"{needed / snapshot.capacity_blocks:.2f} × today's."
    ]


def _knee(estimate: Estimate, snapshot: Snapshot) -> list[str]:
    """What `hitratio plan` calls the knee, where that is more than today's capacity."""
    if estimate.ceiling is None:
        return []
    size = knee_of(estimate.curve, estimate.ceiling, estimate.in_use_blocks or 0.0)
    ratio = None if size is None else ratio_at(estimate.curve, size)
    if size is None or ratio is None or size <= snapshot.capacity_blocks:
        return []
    another = "GiB" if snapshot.block_bytes else "block"
    return [
        f"Give the cache {capacity(size, snapshot.block_bytes)}, {size / snapshot.capacity_blocks:.1f} × today's: "
        f"predicted {percent(ratio)}. Beyond that, another {another} gains less than on average."
    ]


def _longer(buckets: Sequence[int], seconds: float) -> float | None:
    """Share of the interarrival times beyond ``seconds``, linear within a bucket."""
    total = sum(buckets)
    if not total:
        return None
    longer, low = 0.0, 0.0
    for bound, turns in zip((*INTERARRIVAL_BOUNDS, float("inf")), buckets, strict=True):
        if seconds <= low:
            longer += turns
        elif seconds < bound < float("inf"):
            longer += turns * (bound - seconds) / (bound - low)
        low = bound
    return longer / total

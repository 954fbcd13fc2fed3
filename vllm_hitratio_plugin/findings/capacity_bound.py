"""The cache is too small for the pauses between turns."""

from vllm_hitratio_plugin.findings.curve import capacity_surviving, knee
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import capacity, count, duration, percent, points
from vllm_hitratio_plugin.snapshot import INTERARRIVAL_BOUNDS, Counters, Estimate, Snapshot

_NOTABLE = 0.005
_BAD = 0.03
_PAUSE_S = 300.0


def capacity_bound(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires by the share of prompt blocks that an exact LRU of this capacity lost, too."""
    evicted = traffic.share("capacity")
    if evicted < _NOTABLE:
        return None
    estimate, now = snapshot.estimate, snapshot.capacity_blocks
    met = (
        estimate is not None
        and estimate.target is not None
        and estimate.observed is not None
        and estimate.observed >= estimate.target
    )
    evidence = [
        f"{percent(evicted)} of the prompt blocks {traffic.window} had been cached and were evicted before they were "
        "asked "
        f"for again; an ideal LRU of {count(now, 'block')} loses them, too. {percent(traffic.share('hit'))} were hit, "
        f"{percent(traffic.share('cold'))} had never been seen, "
        f"{percent(traffic.share('partial'))} were parts of blocks.",
    ]
    actions = []
    gain = evicted
    if estimate is not None:
        if estimate.observed is not None and estimate.ceiling is not None:
            evidence.append(
                f"Hit ratio {percent(estimate.observed)} at {capacity(now, snapshot.block_bytes)}; unlimited memory "
                "would give "
                f"{percent(estimate.ceiling)}."
            )
        evidence += _survival(estimate, traffic.counters, snapshot)
        evidence += _target(estimate, snapshot)
        size = knee(estimate.curve)
        if size is not None and size > now:
            ratio = estimate.curve[size]
            actions.append(
                f"Give the cache {capacity(size, snapshot.block_bytes)}, {size / now:.1f} × today's: predicted "
                f"{percent(ratio)}"
                + (
                    ", the largest capacity looked at."
                    if size == max(estimate.curve)
                    else "; beyond that little is gained."
                )
            )
    actions += [
        "More memory for KV: --gpu-memory-utilization, --kv-cache-dtype fp8, more workers, or a second tier in host "
        "memory.",
        "Less traffic for each replica, with conversations kept on their replica: half the traffic is worth twice "
        "the blocks.",
    ]
    return Finding(
        rule="capacity-bound",
        severity="warning" if evicted >= _BAD and not met else "info",
        confidence=0.95,
        summary=f"The cache is too small for this traffic: {points(evicted)} of hit ratio are lost to eviction.",
        evidence=tuple(evidence),
        causes=(
            "Conversations pause longer than an unused block survives.",
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
        loss=gain,
    )


def _survival(estimate: Estimate, counters: Counters, snapshot: Snapshot) -> list[str]:
    survival = estimate.characteristic_time
    if survival is None:
        return []
    words = f"An unused block survives {duration(survival)} (T_C)"
    longer = _longer(counters.interarrival_buckets, survival)
    if longer is not None:
        words += f"; {percent(longer)} of the pauses between turns are longer"
    if survival < _PAUSE_S:
        words += f"; a pause of {_PAUSE_S:.0f} s is evicted"
        enough = capacity_surviving(estimate.characteristic_times, _PAUSE_S)
        if enough is not None:
            words += f", {capacity(enough, snapshot.block_bytes)} would survive it"
    return [f"{words}."]


def _target(estimate: Estimate, snapshot: Snapshot) -> list[str]:
    if estimate.target is None or estimate.reachable is None:
        return []
    if estimate.recommended_blocks is None:
        return [f"The target of {percent(estimate.target)} is out of reach at any capacity."]
    return [
        f"The target of {percent(estimate.target)} takes "
        f"{capacity(estimate.recommended_blocks, snapshot.block_bytes)}, "
        f"{estimate.recommended_blocks / snapshot.capacity_blocks:.2f} × today's."
    ]


def _longer(buckets: list[int], seconds: float) -> float | None:
    """Share of the pauses beyond ``seconds``, linear within a bucket."""
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

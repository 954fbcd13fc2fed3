"""Blocks in use leave little room for reusable content."""

from vllm_hitratio_plugin.findings.by_capacity import ratio_at
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import REUSE_TIME, Snapshot
from vllm_hitratio_plugin.wording import capacity, count, percent, points

_NOTABLE = 0.3
_BAD = 0.5


def pinned_capacity(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where running requests use a third of the cache, and blocks were evicted."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.in_use_blocks is None:
        return None
    in_use = estimate.in_use_blocks
    share = in_use / snapshot.capacity_blocks
    if share < _NOTABLE or not period.blocks("capacity"):
        return None
    evidence = [
        f"When a request is admitted, other requests use {capacity(in_use, snapshot.block_bytes)} on average, "
        f"{percent(share)} of {count(snapshot.capacity_blocks, 'block')}. Only the rest can keep history.",
    ]
    gain = most = None
    if estimate.ceiling is not None and estimate.observed is not None:
        most = max(estimate.ceiling - estimate.observed, 0.0)
    predicted, more = estimate.predicted.get(REUSE_TIME), ratio_at(estimate.curve, snapshot.capacity_blocks + in_use)
    if predicted is not None and more is not None:
        gain = max(more - predicted, 0.0)
        evidence.append(f"With as many more blocks, the prediction rises from {percent(predicted)} by {points(gain)}.")
    return Finding(
        rule="pinned-capacity",
        severity="warning" if share >= _BAD and (gain is None or gain >= 0.02) else "info",
        confidence=0.85,
        summary=f"Running requests use {percent(share)} of the cache, so the histories of waiting conversations are "
        "evicted early.",
        evidence=tuple(evidence),
        causes=(
            "Many or long sequences run at a time.",
            "Disaggregated prefill: blocks stay in use until their transfer to the decoder has finished.",
        ),
        actions=(
            "Speed up the KV transfer, or lower --max-num-seqs: a block that is released earlier is a block of cache.",
            "Give the cache more memory.",
        ),
        metrics=("hitratio_in_use_blocks", "hitratio_capacity_blocks", "vllm:num_requests_running"),
        loss=gain if gain is None or most is None else min(gain, most),
    )

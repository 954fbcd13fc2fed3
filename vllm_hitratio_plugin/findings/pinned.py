"""Blocks in use leave little room for what could be reused."""

from vllm_hitratio_plugin.findings.curve import ratio_at
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import capacity, count, percent, points
from vllm_hitratio_plugin.snapshot import REUSE_TIME, Snapshot

_NOTABLE = 0.3
_BAD = 0.5


def pinned(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where running requests hold a third of the cache, and what they hold is missed."""
    estimate = snapshot.estimate
    if not snapshot.modelled or estimate is None or estimate.in_use_blocks is None:
        return None
    held = estimate.in_use_blocks
    share = held / snapshot.capacity_blocks
    if share < _NOTABLE or not traffic.blocks("capacity"):
        return None
    evidence = [
        f"Other requests hold {capacity(held, snapshot.block_bytes)} on average when a prompt is admitted: "
        f"{percent(share)} of "
        f"{count(snapshot.capacity_blocks, 'block')}; only the rest keeps history.",
    ]
    gain = None
    predicted, more = estimate.predicted.get(REUSE_TIME), ratio_at(estimate.curve, snapshot.capacity_blocks + held)
    if predicted is not None and more is not None:
        gain = max(more - predicted, 0.0)
        evidence.append(f"With that much more room the prediction rises from {percent(predicted)} by {points(gain)}.")
    return Finding(
        rule="pinned-capacity",
        severity="warning" if share >= _BAD and (gain is None or gain >= 0.02) else "info",
        confidence=0.85,
        summary=f"Running requests hold {percent(share)} of the cache, so histories of waiting conversations are "
        "evicted early.",
        evidence=tuple(evidence),
        causes=(
            "Many or long sequences at a time.",
            "Disaggregated prefill: blocks stay in use until the transfer to the decoder is done.",
        ),
        actions=(
            "Speed up the KV transfer, or lower --max-num-seqs: each block released earlier is a block of cache.",
            "Give the cache more memory.",
        ),
        metrics=("hitratio_in_use_blocks", "hitratio_capacity_blocks", "vllm:num_requests_running"),
        loss=gain,
    )

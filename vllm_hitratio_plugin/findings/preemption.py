"""Requests are preempted and computed again."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent

_BAD = 0.01


def preemption(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where preempted requests came back: the running requests alone do not fit."""
    resumed, requests = period.counters.resumed, period.counters.requests
    if not resumed:
        return None
    share = resumed / (resumed + requests)
    evidence = [
        f"{count(resumed, 'preempted request')} came back {period.since}, {percent(share)} of all admissions; "
        f"{count(requests, 'request')} were new.",
        "They are not counted again: what a request finds of itself is no hit. A figure that counts them is inflated.",
    ]
    estimate = snapshot.estimate
    if estimate is not None and estimate.in_use_blocks is not None:
        evidence.append(
            f"When a request is admitted, other requests use {count(estimate.in_use_blocks, 'block')} of "
            f"{snapshot.capacity_blocks:,} on average ({percent(estimate.in_use_blocks / snapshot.capacity_blocks)})."
        )
    return Finding(
        rule="preemption",
        severity="warning" if resumed > _BAD * requests else "info",
        confidence=0.95,
        summary="The running requests do not fit in the KV cache: vLLM preempts some, frees their blocks and computes "
        "them again.",
        evidence=tuple(evidence),
        causes=("Too many sequences run at a time for this capacity.", "Answers grow longer than the cache allows."),
        actions=(
            "Lower --max-num-seqs, or give the cache more memory (--gpu-memory-utilization, more workers).",
            "Limit max_tokens of the longest answers.",
        ),
        metrics=("hitratio_resumed_requests_total", "vllm:num_preemptions_total", "hitratio_in_use_blocks"),
    )

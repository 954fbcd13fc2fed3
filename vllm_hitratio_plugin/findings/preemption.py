"""Requests are preempted and computed again."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, percent
from vllm_hitratio_plugin.snapshot import Snapshot

_BAD = 0.01


def preemption(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where preempted requests came back: the running requests alone do not fit."""
    resumed, requests = traffic.counters.resumed, traffic.counters.requests
    if not resumed:
        return None
    evidence = [
        f"{count(resumed, 'preempted request')} came back {traffic.since}, beside {count(requests, 'new prompt')} "
        f"({percent(resumed / (resumed + requests))} of all admissions).",
        "They are not counted as prompts: what a request finds of itself is no hit. A figure that counts them is "
        "inflated.",
    ]
    estimate = snapshot.estimate
    if estimate is not None and estimate.in_use_blocks is not None:
        evidence.append(
            f"Running requests hold {count(estimate.in_use_blocks, 'block')} of {snapshot.capacity_blocks:,} on "
            "average "
            f"when a prompt is admitted ({percent(estimate.in_use_blocks / snapshot.capacity_blocks)})."
        )
    return Finding(
        rule="preemption",
        severity="warning" if resumed > _BAD * requests else "info",
        confidence=0.95,
        summary="Running requests do not fit in the KV cache: some are thrown out, lose their blocks and are "
        "computed again.",
        evidence=tuple(evidence),
        causes=("Too many sequences at a time for the capacity.", "Long answers that nobody reserved blocks for."),
        actions=(
            "Lower --max-num-seqs, or give the cache more memory (--gpu-memory-utilization, more workers).",
            "Bound max_tokens of the longest answers.",
        ),
        metrics=("hitratio_resumed_requests_total", "vllm:num_preemptions_total", "hitratio_in_use_blocks"),
        loss=resumed / (resumed + requests),
    )

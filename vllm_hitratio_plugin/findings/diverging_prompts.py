"""Prompts share a short beginning and differ from there on."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, percent, points
from vllm_hitratio_plugin.snapshot import Snapshot

_LEAST_PROMPTS = 20
_SHARE = 0.5
_EARLY = 0.25
_VERY_EARLY = 0.1
_COLD = 0.3


def diverging_prompts(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires where most prompts leave the others at one early block and the rest of them is cold."""
    counters = traffic.counters
    if not counters.fork_depths or counters.requests < _LEAST_PROMPTS:
        return None
    depth = max(counters.fork_depths, key=lambda block: (counters.fork_depths[block], -block))
    share = counters.fork_depths[depth] / counters.requests
    mean = counters.prompt_blocks / counters.requests
    cold = traffic.share("compulsory", "new", "diverged")
    if share < _SHARE or depth > _EARLY * mean or cold < _COLD:
        return None
    block = snapshot.block_size
    evidence = [
        f"{percent(share)} of the prompts {traffic.since} share {count(depth, 'block')} ({depth * block:,} tokens) "
        "with others "
        f"and differ from block {depth} on; a prompt has {mean:,.0f} blocks on average.",
        f"{percent(cold)} of the prompt blocks {traffic.window} had never been seen before, behind that point.",
    ]
    estimate = snapshot.estimate
    if estimate is not None and estimate.curve:
        gain = max(estimate.curve.values()) - min(estimate.curve.values())
        evidence.append(
            f"From {min(estimate.curve):,} to {max(estimate.curve):,} blocks the predicted hit ratio changes by "
            f"{points(gain)}" + (": more memory won't help." if gain < 0.05 else ".")
        )
    return Finding(
        rule="prompts-diverge-early",
        severity="warning" if depth <= _VERY_EARLY * mean else "info",
        confidence=0.7,
        summary=f"Prompts diverge at block {depth}: what stands behind it can't be shared, however much of it is the "
        "same.",
        evidence=tuple(evidence),
        causes=(
            f"Something that changes stands near token {depth * block:,}: a timestamp, a request id, a user's name.",
            "Tools or documents are listed in an order that changes.",
            "Or the texts behind it really differ (a document per prompt); then nothing is wrong.",
        ),
        actions=(
            f"Print two prompts and compare them from token {depth * block:,} on; move what changes behind what is "
            "fixed.",
            "Sort tools and retrieved documents; round timestamps to the day.",
        ),
        metrics=(
            "hitratio_fork_depth_blocks",
            "hitratio_curve_ratio",
            'hitratio_prompt_blocks_by_outcome_total{outcome="compulsory"}',
        ),
        loss=cold,
    )

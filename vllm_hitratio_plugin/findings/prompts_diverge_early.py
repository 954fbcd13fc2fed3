"""Prompts share a short beginning and differ from there on."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent, points

_LEAST_REQUESTS = 20
_SHARE = 0.5
_EARLY = 0.25
_VERY_EARLY = 0.1
_COLD = 0.3


def prompts_diverge_early(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires where most prompts leave the others at one early block and the rest of them is new."""
    counters = period.counters
    if not counters.fork_depths or counters.requests < _LEAST_REQUESTS:
        return None
    depth = max(counters.fork_depths, key=lambda block: (counters.fork_depths[block], -block))
    share = counters.fork_depths[depth] / counters.requests
    mean = counters.prompt_blocks / counters.requests
    cold = period.share("compulsory", "new", "diverged")
    if share < _SHARE or depth > _EARLY * mean or cold < _COLD:
        return None
    token = depth * snapshot.block_size
    evidence = [
        f"{percent(share)} of the prompts {period.since} share {count(depth, 'block')} ({token:,} tokens) with others "
        f"and differ from block {depth} on. A prompt has {mean:,.0f} blocks on average.",
        f"{percent(cold)} of the prompt blocks {period.window} had never been seen before.",
    ]
    estimate = snapshot.estimate
    if estimate is not None and estimate.curve:
        gain = max(estimate.curve.values()) - min(estimate.curve.values())
        evidence.append(
            f"From {min(estimate.curve):,} to {max(estimate.curve):,} blocks, the predicted hit ratio changes by "
            f"{points(gain)}" + (": more memory won't help." if gain < 0.05 else ".")
        )
    return Finding(
        rule="prompts-diverge-early",
        severity="warning" if depth <= _VERY_EARLY * mean else "info",
        confidence=0.7,
        summary=f"Prompts diverge at block {depth}. Nothing behind it can be shared, even where the text is the same.",
        evidence=tuple(evidence),
        causes=(
            f"Something variable stands near token {token:,}: a timestamp, a request id, a user name.",
            "Tools or documents are listed in varying order.",
            "The texts really differ from there on, such as one document per prompt. Then nothing is wrong.",
        ),
        actions=(
            f"Compare two prompts from token {token:,} on. Move what varies behind what is fixed.",
            "Sort tools and retrieved documents. Round timestamps to the day.",
        ),
        metrics=(
            "hitratio_fork_depth_blocks",
            "hitratio_curve_ratio",
            'hitratio_prompt_blocks_by_outcome_total{outcome="compulsory"}',
        ),
        loss=cold,
    )

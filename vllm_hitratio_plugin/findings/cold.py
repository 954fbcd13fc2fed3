"""Most of the prompts is new: there is nothing to reuse."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import percent, points
from vllm_hitratio_plugin.snapshot import Snapshot

_COLD = 0.6
_CHANGED = 0.1


def cold(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires by the share of prompt blocks that had never been seen before."""
    new = traffic.share("compulsory", "new")
    if new < _COLD:
        return None
    hit = traffic.share("hit")
    evidence = [
        f"{percent(new)} of {traffic.prompt_blocks:,} prompt blocks {traffic.window} had never been seen before; "
        f"{percent(hit)} were hit, {percent(traffic.share('capacity'))} had been evicted.",
    ]
    estimate, counters = snapshot.estimate, snapshot.counters
    if estimate is not None and estimate.ceiling is not None:
        evidence.append(f"No capacity can hit more than {percent(estimate.ceiling)} of these prompts.")
    if counters is not None and counters.prompt_blocks:
        whole = counters.hit_blocks / counters.prompt_blocks
        if abs(whole - hit) >= _CHANGED:
            evidence.append(
                f"Since the start the hit ratio is {percent(whole)}, {points(abs(whole - hit))} "
                f"{'more' if whole > hit else 'less'}: the workload changed, and an average over the whole life "
                "hides it."
            )
    if traffic.counters.conversations and traffic.counters.requests:
        turns = traffic.counters.requests / traffic.counters.conversations
        evidence.append(f"A conversation has {turns:.2f} turns on average {traffic.since}, as this engine sees it.")
    return Finding(
        rule="cold-workload",
        severity="info",
        confidence=0.9,
        summary="The workload is cold: most of every prompt is new to this engine, so there is little that any cache "
        "could hit.",
        evidence=tuple(evidence),
        causes=(
            "Single-turn prompts with contents of their own (batch jobs, classification, embeddings, a benchmark of "
            "random "
            "prompts).",
            "A balancer that sends the turns of one conversation to different replicas: send conversation_id and "
            "turn in "
            "vllm_xargs, and this tool can tell.",
            "Something that changes at the very beginning of the prompt.",
        ),
        actions=(
            "Don't buy memory for it; check the first tokens of two prompts that should share a beginning.",
            "Put what is common (system prompt, tools, examples) first.",
        ),
        metrics=(
            'hitratio_prompt_blocks_by_outcome_total{outcome="compulsory"}',
            "hitratio_infinite_cache_ratio",
            "hitratio_turns_per_conversation",
        ),
        # Not to be won back: it ranks behind what can be.
        loss=0.0,
    )

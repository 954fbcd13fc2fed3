"""Most of every prompt is new: there is little to reuse."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import duration, percent, points

_COLD = 0.6
#: A young engine has not seen much, so everything is new to it.
_LEAST_REQUESTS = 200
_CHANGED = 0.1


def cold_workload(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the share of prompt blocks that had never been seen before."""
    new, estimate, counters = period.share("compulsory", "new"), snapshot.estimate, snapshot.counters
    if new < _COLD or estimate is None or estimate.requests < _LEAST_REQUESTS:
        return None
    hit = period.share("hit")
    evidence = [
        f"{percent(new)} of {period.prompt_blocks:,} prompt blocks {period.window} were new to this engine; "
        f"{percent(hit)} were hits, {percent(period.share('capacity'))} had been evicted.",
    ]
    if estimate.ceiling is not None:
        error = "" if estimate.ceiling_stderr is None else f" ± {100 * estimate.ceiling_stderr:.1f}"
        evidence.append(f"On this traffic, no capacity can hit more than {percent(estimate.ceiling)}{error}.")
        if not estimate.ceiling:
            evidence.append(
                f"None of {estimate.requests:,} prompts in the last {duration(estimate.window_seconds)} repeats as "
                "much as the first block of a prompt that this engine remembers."
            )
    if counters is not None and counters.prompt_blocks:
        whole = counters.hit_blocks / counters.prompt_blocks
        if abs(whole - hit) >= _CHANGED:
            evidence.append(
                f"Since the start the hit ratio is {percent(whole)}, {points(abs(whole - hit))} "
                f"{'more' if whole > hit else 'less'}: the workload changed, and a lifetime average hides it."
            )
    if period.counters.conversations and period.counters.requests:
        turns = period.counters.requests / period.counters.conversations
        evidence.append(f"As this engine sees it, a conversation has {turns:.2f} turns on average {period.since}.")
    return Finding(
        rule="cold-workload",
        severity="info",
        confidence=0.9,
        summary="The workload is cold: most of every prompt is new to this engine, so no cache could hit much of it.",
        evidence=tuple(evidence),
        causes=(
            "Single-turn prompts with their own content: batch jobs, classification, embeddings, a benchmark with "
            "random prompts.",
            "A balancer sends the turns of one conversation to different replicas. This tool can tell if clients send "
            "conversation_id and turn in vllm_xargs.",
            "Something varies at the very beginning of the prompt: an image, a timestamp, a request id.",
        ),
        actions=(
            "Do not buy memory for it. Compare the first tokens of two prompts that should share a beginning.",
            "Put what is common (system prompt, tools, examples) first.",
        ),
        metrics=(
            'hitratio_prompt_blocks_by_outcome_total{outcome="compulsory"}',
            "hitratio_infinite_cache_ratio",
            "hitratio_turns_per_conversation",
        ),
        # Compulsory misses can't be won back, so this ranks behind what can.
        loss=0.0,
    )

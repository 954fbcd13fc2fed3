"""The next prompt does not contain what the turn before left in the cache."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent

_NOTABLE = 0.02
_BAD = 0.05


def template_rewrites_history(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the blocks cached for a conversation that its next prompt did not ask for."""
    counters = period.counters
    unreused, turns = counters.unreused_history_blocks, period.follow_up_turns
    if not counters.prompt_blocks or turns <= 0:
        return None
    diverged = period.share("compulsory", "diverged")
    share = unreused / counters.prompt_blocks
    if max(share, diverged) < _NOTABLE:
        return None
    evidence = [
        f"{count(unreused, 'block')} {period.since} were cached for a conversation, and its next prompt did not ask "
        f"for them: {unreused / turns:.1f} blocks per follow-up turn, over {count(turns, 'turn')}.",
    ]
    resident = _resident(snapshot, period)
    if resident is not None:
        evidence.append(
            f"They occupy {percent(min(resident / snapshot.capacity_blocks, 1.0))} of the cache's "
            f"{count(snapshot.capacity_blocks, 'block')}."
        )
    if diverged:
        evidence.append(
            f"{percent(diverged)} of the prompt blocks {period.window} stand where the conversation's previous prompt "
            "had other content: the history itself was changed."
        )
    return Finding(
        rule="template-rewrites-history",
        severity="warning" if max(share, diverged) >= _BAD else "info",
        confidence=0.85,
        summary="Follow-up turns do not repeat what the turn before cached: the history is rewritten or left out, and "
        "the old blocks are never used again.",
        evidence=tuple(evidence),
        causes=(
            "The chat template drops thinking from earlier turns (reasoning models): only blocks before the first "
            "thinking are reusable.",
            "The client does not send answers back, trims, summarises or reorders messages, or regenerates answers.",
            "An answer's text is tokenised differently when it comes back as history.",
        ),
        actions=(
            "Keep thinking in the history if the model allows it. Otherwise accept the loss: the cache can't avoid it.",
            "Let clients only append. Trim in large, rare steps instead of at every turn.",
        ),
        metrics=(
            "hitratio_unreused_history_blocks_total",
            'hitratio_prompt_blocks_by_outcome_total{outcome="compulsory",reason="diverged"}',
        ),
        loss=max(share, diverged),
    )


def _resident(snapshot: Snapshot, period: Period) -> float | None:
    """How many of those blocks are cached at a time; None where that is unknown."""
    unreused = period.counters.unreused_history_blocks
    time = snapshot.estimate.characteristic_time if snapshot.estimate is not None else None
    if time is not None and period.seconds:
        # Little's law: each stays for T_C.
        return unreused * min(time / period.seconds, 1.0)
    whole = snapshot.index_blocks is not None and snapshot.index_blocks <= snapshot.capacity_blocks
    return float(unreused) if whole and not period.blocks("capacity") else None

"""The next prompt does not contain what the turn before left in the cache."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.findings.residency import share_of_cache
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent

_NOTABLE = 0.02
_BAD = 0.05


def template_rewrites_history(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the blocks cached for a conversation that its next prompt did not ask for."""
    counters = period.counters
    unreused, written, turns = counters.unreused_history_blocks, counters.written_blocks, period.follow_up_turns
    if not written or turns <= 0:
        return None
    diverged = period.share("compulsory", "diverged")
    # What was written just before the period may be found unused within it.
    share = min(unreused / written, 1.0)
    if max(share, diverged) < _NOTABLE:
        return None
    evidence = [
        f"{count(unreused, 'block')} {period.since} were cached for a conversation, and its next prompt did not ask "
        f"for them: {unreused / turns:.1f} blocks per follow-up turn, over {count(turns, 'turn')}. That is "
        f"{percent(share)} of what was written into the cache in that time.",
    ]
    total = 0 if snapshot.counters is None else snapshot.counters.unreused_history_blocks
    occupied = share_of_cache(snapshot, unreused, period.seconds, total)
    if occupied is not None:
        evidence.append(f"They occupy {percent(occupied)} of the cache's {count(snapshot.capacity_blocks, 'block')}.")
    if diverged:
        evidence.append(
            f"{percent(diverged)} of the prompt blocks {period.window} stand where the conversation's previous prompt "
            "had other content: the history itself was changed."
        )
    return Finding(
        rule="template-rewrites-history",
        severity="warning" if max(share, diverged) >= _BAD else "info",
        confidence=0.7,
        summary=f"Follow-up turns do not repeat what the turn before cached: {percent(share)} of the blocks written "
        "are not asked for by the next prompt of their conversation.",
        evidence=tuple(evidence),
        causes=(
            "The chat template drops thinking from earlier turns (reasoning models): only blocks before the first "
            "thinking are reusable.",
            "The client does not send answers back, which may be on purpose. Then there is no template to mend.",
            "The client trims, summarises or reorders messages, or regenerates answers.",
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
        # Blocks that nobody asks for only take room; what was changed in the prompts could have hit.
        loss=diverged,
    )

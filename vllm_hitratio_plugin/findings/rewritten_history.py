"""The next prompt does not contain what the last turn left in the cache."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, percent
from vllm_hitratio_plugin.snapshot import Snapshot

_NOTABLE = 0.02
_BAD = 0.05


def rewritten_history(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires by the blocks cached for a conversation that its next prompt did not ask for."""
    counters = traffic.counters
    stale, later = counters.unreused_history_blocks, traffic.follow_up_turns
    if not counters.prompt_blocks or later <= 0:
        return None
    diverged = traffic.share("compulsory", "diverged")
    share = stale / counters.prompt_blocks
    if max(share, diverged) < _NOTABLE:
        return None
    capacity = snapshot.capacity_blocks
    resident, words = stale, traffic.since
    survival = snapshot.estimate.characteristic_time if snapshot.estimate is not None else None
    if survival is not None and traffic.seconds and traffic.seconds > survival:
        resident, words = round(stale * survival / traffic.seconds), "at any time"
    evidence = [
        f"{count(stale, 'block')} {traffic.since} were cached for a conversation and can never be asked for again: "
        f"{stale / later:.1f} blocks for each of {count(later, 'later turn')}.",
        f"They take up {percent(min(resident / capacity, 1.0))} of the cache's {count(capacity, 'block')} {words}.",
    ]
    if diverged:
        evidence.append(
            f"{percent(diverged)} of the prompt blocks {traffic.window} stand where the same conversation's previous "
            "prompt "
            "had other content: the history itself was changed."
        )
    return Finding(
        rule="template-rewrites-history",
        severity="warning" if max(share, diverged) >= _BAD else "info",
        confidence=0.85,
        summary="The chat template rewrites history: later turns do not repeat what was cached, so it is computed "
        "again "
        "and the old blocks lie dead.",
        evidence=tuple(evidence),
        causes=(
            "Thinking is dropped from earlier turns (reasoning models): only blocks before the first thinking are "
            "reusable.",
            "The client trims, summarises or re-orders messages, or edits and regenerates.",
            "An answer's text is tokenised otherwise when it comes back as history.",
        ),
        actions=(
            "Keep thinking in the history if the model allows it, or accept the loss: it is not the cache's.",
            "Let clients append only; trim in large, rare steps instead of at every turn.",
        ),
        metrics=(
            "hitratio_unreused_history_blocks_total",
            'hitratio_prompt_blocks_by_outcome_total{outcome="compulsory",reason="diverged"}',
        ),
        loss=max(share, diverged),
    )

"""Speculative decoding gives up a block of every hit."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import count, percent, points
from vllm_hitratio_plugin.snapshot import Snapshot

_NOTABLE = 0.01


def spec_decode(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires by the share of prompt blocks that were known and had to be left out."""
    dropped = traffic.share("partial", "dropped")
    if dropped < _NOTABLE:
        return None
    unit = snapshot.block_size
    return Finding(
        rule="spec-decode-unit",
        severity="info",
        confidence=1.0,
        summary=f"Speculative decoding gives up the last {unit:,} tokens of every hit: a known, constant loss of "
        f"{points(dropped)}, no fault.",
        evidence=(
            f"{count(traffic.blocks('partial', 'dropped'), 'cached block')} ({percent(dropped)} of the prompt blocks) "
            f"{traffic.window} were recomputed for the draft model.",
            f"Hits are max(0, floor((L - 1) / {unit:,}) - 1) · {unit:,} tokens; prediction and ceiling count that in.",
        ),
        causes=("EAGLE or MTP drafting needs the hidden states of the last cached block.",),
        actions=(
            "Nothing, if the speed-up of decoding is worth it; prompts of up to two blocks lose their whole hit.",
            "A smaller --block-size makes the unit, and so the loss, smaller.",
        ),
        metrics=('hitratio_prompt_blocks_by_outcome_total{outcome="partial",reason="dropped"}',),
        loss=dropped,
    )

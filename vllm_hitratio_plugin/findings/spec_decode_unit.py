"""Speculative decoding gives up a block of every hit."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent, points

_NOTABLE = 0.01


def spec_decode_unit(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the share of prompt blocks that were known but had to be computed again."""
    dropped = period.share("partial", "dropped")
    if dropped < _NOTABLE:
        return None
    unit = snapshot.block_size
    return Finding(
        rule="spec-decode-unit",
        severity="info",
        confidence=1.0,
        summary=f"Speculative decoding gives up the last {unit:,} tokens of every hit. This loss of {points(dropped)} "
        "is known and constant; it is not a fault.",
        evidence=(
            f"{count(period.blocks('partial', 'dropped'), 'cached block')} ({percent(dropped)} of the prompt blocks) "
            f"{period.window} were computed again for the draft model.",
            f"A hit is max(0, floor((L - 1) / {unit:,}) - 1) · {unit:,} tokens. Prediction and ceiling include that.",
        ),
        causes=("EAGLE or MTP drafting needs the hidden states of the last cached block.",),
        actions=(
            "None, if faster decoding is worth it. Prompts of up to two blocks lose their whole hit.",
            "A smaller --block-size reduces the loss.",
        ),
        metrics=('hitratio_prompt_blocks_by_outcome_total{outcome="partial",reason="dropped"}',),
        loss=dropped,
    )

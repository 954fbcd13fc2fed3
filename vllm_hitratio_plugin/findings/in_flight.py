"""Requests ask for what another request is still computing."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.wording import count, percent, points

_NOTABLE = 0.02
_BAD = 0.10
_LEAST_BLOCKS = 20


def in_flight(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the share of prompt blocks that another request was computing at the lookup."""
    blocks, share = period.blocks("in_flight"), period.share("in_flight")
    if share < _NOTABLE or blocks < _LEAST_BLOCKS:
        return None
    return Finding(
        rule="in-flight",
        severity="warning" if share >= _BAD else "info",
        confidence=0.95,
        summary=f"{points(share)} of the prompts were being computed by another request at the time of the lookup. "
        "Waiting for the first one, or prefix-aware scheduling, would have hit them.",
        evidence=(
            f"{count(blocks, 'prompt block')} ({percent(share)}) {period.window} were asked for by a second request "
            "before the first had computed them. Each was computed again.",
            f"{percent(period.share('hit'))} of the prompt blocks were hits. Neither the capacity nor the engine's "
            "eviction explains these misses, so more memory changes nothing about them.",
        ),
        causes=(
            "Clients send several requests with the same new prompt at once: parallel samples, retries, a fan-out of "
            "agents.",
            "Chunked prefill interleaves long prompts, so the first one takes several steps.",
        ),
        actions=(
            "Send one request first, and the others when its first token has come.",
            "Use a router or scheduler that holds requests back while their prefix is being computed.",
        ),
        metrics=('hitratio_prompt_blocks_by_outcome_total{outcome="in_flight"}',),
        loss=share,
    )

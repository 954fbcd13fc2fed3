"""The same content is cached several times, under several adapters or salts."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.findings.residency import share_of_cache
from vllm_hitratio_plugin.snapshot import OUTCOMES, Snapshot
from vllm_hitratio_plugin.wording import capacity, percent

_NOTABLE = 0.01
_BAD = 0.05


def duplicate_namespaces(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires by the share of prompt blocks that are cached under another adapter or salt already."""
    blocks, share = period.blocks("compulsory", "namespace"), period.share("compulsory", "namespace")
    if share < _NOTABLE:
        return None
    estimate, counters = snapshot.estimate, snapshot.counters
    seconds = None if estimate is None else estimate.window_seconds
    total = 0 if counters is None else counters.outcomes[OUTCOMES.index(("compulsory", "namespace"))]
    occupied = share_of_cache(snapshot, blocks, seconds, total)
    copies = f"The copies are {capacity(blocks, snapshot.block_bytes)}"
    if occupied is not None:
        copies += f"; such copies occupy {percent(occupied)} of the cache's {snapshot.capacity_blocks:,} at a time"
    return Finding(
        rule="duplicate-namespaces",
        severity="warning" if share >= _BAD else "info",
        confidence=0.95,
        summary="The same prompts are computed and cached again for every LoRA adapter or cache salt.",
        evidence=(
            f"{percent(share)} of the prompt blocks {period.window} missed only because the same content was cached "
            "under another adapter or salt.",
            f"{copies}.",
        ),
        causes=(
            "cache_salt is set per user or per request where per tenant would do.",
            "Several LoRA adapters use the same system prompt. Their KV differs, so they can't share it.",
        ),
        actions=(
            "Use one salt for all that may share a cache.",
            "Send each adapter's traffic to replicas of its own, so that copies do not compete for one cache.",
        ),
        metrics=('hitratio_prompt_blocks_by_outcome_total{outcome="compulsory",reason="namespace"}',),
        loss=share,
    )

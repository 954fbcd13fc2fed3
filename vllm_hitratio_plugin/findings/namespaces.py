"""The same content is cached several times, under several adapters or salts."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import capacity, percent
from vllm_hitratio_plugin.snapshot import Snapshot

_NOTABLE = 0.01
_BAD = 0.05


def namespaces(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires by the share of prompt blocks that another adapter or salt had cached already."""
    blocks, share = traffic.blocks("compulsory", "namespace"), traffic.share("compulsory", "namespace")
    if share < _NOTABLE:
        return None
    return Finding(
        rule="duplicate-namespaces",
        severity="warning" if share >= _BAD else "info",
        confidence=0.95,
        summary="The same prompts are computed and cached again for every LoRA adapter or cache salt.",
        evidence=(
            f"{percent(share)} of the prompt blocks {traffic.window} were cold only because another adapter or salt "
            "had "
            "cached the same content.",
            f"Those copies took {capacity(blocks, snapshot.block_bytes)}, which is "
            f"{percent(blocks / snapshot.capacity_blocks)} "
            f"of the cache's {snapshot.capacity_blocks:,}.",
        ),
        causes=(
            "cache_salt is chosen per user or request where per tenant would do.",
            "Several LoRA adapters serve the same system prompt; their KV differs, so they can't share it.",
        ),
        actions=(
            "Widen the salt to what really has to be kept apart.",
            "Send each adapter's traffic to replicas of its own, so that copies do not compete for one cache.",
        ),
        metrics=('hitratio_prompt_blocks_by_outcome_total{outcome="compulsory",reason="namespace"}',),
        loss=share,
    )

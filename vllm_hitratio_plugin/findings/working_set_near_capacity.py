"""The cache is still filling: the cliff lies ahead."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import OUTCOMES, Snapshot
from vllm_hitratio_plugin.wording import capacity, count, percent

_NOTABLE = 0.5
_SETTLED = 2.0
_EVICTED = OUTCOMES.index(("capacity", "evicted"))


def working_set_near_capacity(snapshot: Snapshot, period: Period) -> Finding | None:
    """Fires before anything evicted was missed, once distinct content fills half of the cache.

    Where the same conversations go round (a benchmark, a fixed set of clients), it names the round in which they exceed
    N. LRU then evicts each just before it comes back, and the hit ratio falls off a cliff.
    """
    counters, blocks, now = snapshot.counters, snapshot.index_blocks, snapshot.capacity_blocks
    if not snapshot.modelled or counters is None or blocks is None or not counters.conversations or counters.resets:
        return None
    if not _NOTABLE * now <= blocks <= now or counters.outcomes[_EVICTED]:
        return None
    rounds = counters.requests / counters.conversations
    evidence = [
        f"Since the start, the engine has seen {capacity(blocks, snapshot.block_bytes)} of distinct content, "
        f"{percent(blocks / now)} of {count(now, 'block')}. No prompt has missed an evicted block so far.",
    ]
    warned = False
    if rounds >= _SETTLED:
        each = blocks / rounds
        cliff = int(now / each) + 1
        evidence.append(
            f"{count(counters.conversations, 'conversation')} had {rounds:.1f} turns each, and every round adds "
            f"{each:,.0f} blocks. If all go on, in round {cliff} they need "
            f"{capacity(cliff * each, snapshot.block_bytes)}, more than the cache has."
        )
        warned = cliff <= rounds + 1
    return Finding(
        rule="working-set-near-capacity",
        severity="warning" if warned else "info",
        confidence=0.8,
        summary="The cache is filling and has not evicted anything that was needed. Today's hit ratio will not last "
        "once it is full.",
        evidence=tuple(evidence),
        causes=("The server, or the benchmark, is young.", "Conversations grow with every turn."),
        actions=(
            "If the same clients go round, expect a cliff, not a slope. Use fewer clients, fewer turns or more blocks.",
            "With open traffic, wait until the cache is full before judging.",
        ),
        metrics=(
            "hitratio_index_blocks",
            "hitratio_capacity_blocks",
            'hitratio_prompt_blocks_by_outcome_total{outcome="capacity"}',
        ),
    )

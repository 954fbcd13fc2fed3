"""The cache is still filling: the cliff lies ahead."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.wording import capacity, count, percent
from vllm_hitratio_plugin.snapshot import OUTCOMES, Snapshot

_NOTABLE = 0.5
_SETTLED = 2.0
_EVICTED = OUTCOMES.index(("capacity", "evicted"))


def working_set(snapshot: Snapshot, traffic: Traffic) -> Finding | None:
    """Fires before anything was evicted, once half of the cache is taken by distinct content.

    Where the same conversations go round (a benchmark, a fixed set of clients), it says in which round they pass N:
    under LRU each is then evicted just before it comes back, and the hit ratio falls off a cliff.
    """
    counters, blocks, now = snapshot.counters, snapshot.index_blocks, snapshot.capacity_blocks
    if not snapshot.modelled or counters is None or blocks is None or not counters.conversations or counters.resets:
        return None
    if not _NOTABLE * now <= blocks <= now or counters.outcomes[_EVICTED]:
        return None
    rounds = counters.requests / counters.conversations
    evidence = [
        f"{capacity(blocks, snapshot.block_bytes)} of distinct content since the start, {percent(blocks / now)} of "
        f"{count(now, 'block')}; nothing was evicted so far.",
    ]
    warned = False
    if rounds >= _SETTLED:
        each = blocks / rounds
        cliff = int(now / each) + 1
        evidence.append(
            f"{count(counters.conversations, 'conversation')} had {rounds:.1f} turns each, and every round adds "
            f"{each:,.0f} blocks: if all of them go on, in round {cliff} they need "
            f"{capacity(cliff * each, snapshot.block_bytes)}, more than there is."
        )
        warned = cliff <= rounds + 1
    return Finding(
        rule="working-set-near-capacity",
        severity="warning" if warned else "info",
        confidence=0.8,
        summary="The cache is filling and has not evicted anything yet; today's hit ratio will not last once it is "
        "full.",
        evidence=tuple(evidence),
        causes=("The server, or the benchmark, is young.", "Conversations grow with every turn."),
        actions=(
            "Expect a cliff, not a slope, if the same clients go round: fewer clients, fewer turns, or more blocks.",
            "With open traffic, wait until the cache is full before judging.",
        ),
        metrics=(
            "hitratio_index_blocks",
            "hitratio_capacity_blocks",
            'hitratio_prompt_blocks_by_outcome_total{outcome="capacity"}',
        ),
        loss=None,
    )

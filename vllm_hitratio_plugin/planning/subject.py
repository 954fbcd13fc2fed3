"""What is planned for: one model's traffic and the cache it has today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_hitratio_plugin.planning.change import Reblock
from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.observation import observe
from vllm_hitratio_plugin.replay.law import Law
from vllm_hitratio_plugin.replay.pools.pool import Unhashed
from vllm_hitratio_plugin.replay.source import TraceSource
from vllm_hitratio_plugin.snapshot import OUTCOMES, REUSE_TIME, Snapshot

#: Mean rates and rates slot by slot may differ by this much in the hit ratio before the plan mentions it.
_MOVED = 0.01


class PlanError(ValueError):
    """What cannot be planned; the message is one sentence."""


@dataclass(frozen=True)
class Subject:
    """One model."""

    name: str
    source: str
    """Where the traffic was seen, in words."""
    demand: Demand
    capacity_blocks: float
    """N today, blocks."""
    block_bytes: float | None = None
    """Bytes of one block of ``demand.block_size`` tokens, on one worker; None: nothing can be said in GiB."""
    observed: float | None = None
    """Hit ratio that the cache of today had on this traffic."""
    external: float | None = None
    """Share of the prompt blocks that a second tier served beyond that; None where none did, or it is not known."""
    reblock: Reblock | None = None
    """Gives another block size exactly; None: it is estimated."""
    notes: Sequence[str] = ()
    """What a reader should know of the source, a sentence each."""


def live_subject(snapshot: Snapshot) -> Subject:
    """The current window of a live engine.

    Raises:
        PlanError: the snapshot has no estimate, or not the sums that what-ifs need.
    """
    name = f"{snapshot.model_name}, engine {snapshot.engine}"
    estimate = snapshot.estimate
    if not snapshot.modelled:
        raise PlanError(f"{name}: its KV cache is of a kind that is not modelled, so there is nothing to plan with")
    if snapshot.sums is None:
        raise PlanError(
            f"{name}: this page has no sums of the window; give the address of the plugin's exporter, which serves "
            "/hitratio.json"
        )
    if estimate is None or not estimate.ready:
        raise PlanError(f"{name}: its window does not hold enough prompts and reuses for an estimate yet")
    # The index remembers at least the largest capacity of the curve; what came back later was counted as new.
    horizon = max([*estimate.curve, snapshot.capacity_blocks])
    demand = Demand(snapshot.sums, snapshot.block_size, snapshot.unhashed, horizon)
    notes = ["From a live window, so another block size is an approximation."]
    mean, resolved = demand.curve.hit_ratio(snapshot.capacity_blocks), estimate.predicted[REUSE_TIME]
    if mean is not None and resolved is not None and abs(mean - resolved) > _MOVED:
        notes.append(
            f"The traffic moved within the window: what-ifs go by its mean rates, which give {100 * mean:.1f} %, while "
            f"the engine's own estimate, slot by slot, is {100 * resolved:.1f} %."
        )
    loaded = dict(zip(OUTCOMES, estimate.outcomes, strict=False)).get(("hit", "external"), 0)
    external = loaded / sum(estimate.outcomes) if loaded else None
    if external is not None:
        notes.append(
            f"A second tier serves another {100 * external:.1f} % of the prompt blocks today. All other figures are of "
            "the local cache alone: as far as the tier has its content, more hits are less to load, not to compute."
        )
    return Subject(
        name,
        f"live, the last {estimate.window_seconds:,.0f} s",
        demand,
        snapshot.capacity_blocks,
        snapshot.block_bytes,
        estimate.observed,
        external,
        notes=notes,
    )


def recorded_subject(
    source: TraceSource, name: str, capacity_blocks: int, *, unhashed: Unhashed, service: Law | None, seed: int
) -> Subject:
    """A trace, observed while it goes through a cache of ``capacity_blocks``.

    Raises:
        PlanError: there is no prompt in it, or none that fits.
    """
    timed = source.trace()
    trace, window = timed.trace, timed.window
    if not trace.prompts:
        raise PlanError(f"{trace.name}: there is no prompt in it")
    seen = observe(trace, capacity_blocks, unhashed=unhashed, service=service, window=window, seed=seed)
    observed, left_out = seen.observed, seen.demand.left_out
    if observed.hit_ratio is None:
        raise PlanError(f"{trace.name}: no prompt fits into {capacity_blocks:,} blocks")

    def reblock(block_size: int) -> Demand | None:
        try:
            cut = source.trace(block_size).trace
        except ValueError:
            return None
        capacity = max(capacity_blocks * trace.block_size // block_size, 1)
        return observe(cut, capacity, unhashed=unhashed, service=service, window=window, seed=seed).demand

    notes = [f"Observed: a replay through an exact LRU of {capacity_blocks:,} blocks."]
    if left_out:
        notes.append(
            f"Left out of every figure are prompts that got no blocks: larger than {capacity_blocks:,} blocks: "
            f"{observed.rejected:,}; still waiting at the end: {observed.waiting:,}."
        )
    seconds = window[1] - window[0] if window else trace.duration
    times = "" if trace.real_times else ", times drawn"
    return Subject(
        name,
        f"{observed.prompts:,} prompts in {seconds:,.0f} s{times}",
        seen.demand,
        capacity_blocks,
        None,
        observed.hit_ratio,
        reblock=reblock,
        notes=notes,
    )

"""Another block size: what full blocks can be found again, and what the last, partly filled ones cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vllm_hitratio_plugin.model.traffic import LENGTHS_PER_OCTAVE, Array, TrafficSums
from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.runs import Runs, with_runs


def with_block_size(demand: Demand, block_size: int) -> Demand:
    """The same prompts in blocks of ``block_size`` tokens; capacities of the result are in such blocks.

    Approximate, because the sums count reuse in blocks, not tokens (a trace is cut again instead, exactly). A prompt
    that shares E full blocks with what was there before is taken to share any number of tokens from E·b to
    (E+1)·b - 1, all equally likely. Returning prompts that share none share as much as a prompt shorter than a block.
    """
    old, new, sums = demand.block_size, block_size, demand.sums
    if old == new:
        return demand
    ratio = old / new
    own, shared = Runs.own(sums), Runs.shared(sums)
    # A shared prefix is where reuse ends in first prompts; in later ones the conversation's own history follows it.
    ends = (sums.reusable_blocks - sums.returning_blocks) / max(float(shared.blocks.sum()), 1e-9)
    ends = min(max(ends, 0.0), 1.0)
    ending, going_on = (replace(shared, counts=shared.counts * share) for share in (ends, 1 - ends))
    shorter = Runs.joined(_cut(ending, old, new), replace(going_on, lengths=going_on.lengths * ratio))
    cut = with_runs(demand, Runs.joined(_cut(own, old, new), _short(demand, own, new)), shorter)
    _, prompts, full = _blocks(sums, new)
    _, prompts_before, full_before = _blocks(sums, old)
    # The answers' blocks, where they are cached, too.
    allocated = prompts_before if demand.unhashed == "tail" else full_before
    answers = max(sums.written_blocks + sums.reusable_blocks - allocated, 0.0)
    prompts *= sums.prompt_blocks / max(prompts_before, 1e-9)
    written = (prompts if demand.unhashed == "tail" else full) + answers * ratio
    changed = replace(
        cut.sums,
        prompt_blocks=prompts,
        written_blocks=max(written - cut.sums.reusable_blocks, 0.0),
        hit_blocks=None if sums.hit_blocks is None else sums.hit_blocks * ratio,
        in_use_blocks=sums.in_use_blocks * ratio,
        grown_blocks=sums.grown_blocks * ratio,
        returning_blocks=sums.returning_blocks * ratio,
        lags=replace(sums.lags, blocks=sums.lags.blocks * ratio),
    )
    horizon = None if demand.horizon_blocks is None else demand.horizon_blocks * ratio
    return replace(demand, sums=changed, block_size=new, horizon_blocks=horizon)


def _blocks(sums: TrafficSums, size: int) -> tuple[Array, float, float]:
    """Σ floor(L / b) over the prompts of each length, (n,); Σ ceil(L / b) and Σ floor(L / b) over all of them."""
    first, count = sums.lengths.bins, sums.lengths.requests
    low, high = np.ceil(2 ** (first / LENGTHS_PER_OCTAVE)), np.ceil(2 ** ((first + 1) / LENGTHS_PER_OCTAVE))
    high = np.maximum(high, low + 1)
    floors = (_floors(high, size) - _floors(low, size)) / (high - low)
    ceilings = 1 + (_floors(high - 1, size) - _floors(low - 1, size)) / (high - low)
    return floors * count, float(ceilings @ count), float(floors @ count)


def _short(demand: Demand, own: Runs, new: int) -> Runs:
    """What returning prompts that found no full block of their history find in blocks of ``new`` tokens."""
    sums = demand.sums
    turns, seconds = sums.interarrivals.turns, sums.interarrivals.seconds
    missing = max(float(turns.sum() - own.counts.sum()), 0.0)
    below = 2 ** ((sums.lengths.bins + 1) / LENGTHS_PER_OCTAVE) <= demand.block_size
    prompts = float(sums.lengths.requests[below].sum())
    length = float(_blocks(sums, new)[0][below].sum()) / prompts if prompts else 0.0
    if not missing or not length:
        return Runs(np.empty(0), np.empty(0), np.empty(0))
    times = np.maximum(seconds / turns - demand.use_seconds, 0.0)
    return Runs(times, np.full(len(times), length), turns * missing / turns.sum())


def _cut(runs: Runs, old: int, new: int) -> Runs:
    """Each run in new blocks: the mean of floor(x / new) over x from E·old to (E+1)·old - 1 tokens."""
    lengths = (_floors((runs.lengths + 1) * old, new) - _floors(runs.lengths * old, new)) / old
    kept = lengths > 0
    return Runs(runs.times[kept], lengths[kept], runs.counts[kept])


def _floors(end: Array, size: int) -> Array:
    """Σ floor(x / size) over the integers x from 0 below ``end``; between integers, linear."""
    whole = np.floor(end / size)
    return np.asarray(size * whole * (whole - 1) / 2 + whole * (end - whole * size))

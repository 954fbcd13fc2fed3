"""R replicas behind a router, each with a cache of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from vllm_hitratio_plugin.model.traffic import Array, TrafficSums
from vllm_hitratio_plugin.planning.demand import Demand
from vllm_hitratio_plugin.planning.runs import Runs, with_runs

Routing = Literal["sticky", "random"]
"""Every prompt of a conversation to the same replica, or each to any."""

ROUTINGS: tuple[Routing, ...] = get_args(Routing)

#: Lags beyond which less than this share of the reusable blocks is found are left out.
_NEGLIGIBLE = 1e-4
_MOST_LAGS = 200


def with_replicas(demand: Demand, replicas: int, routing: Routing) -> Demand:
    """What one of ``replicas`` sees of today's traffic.

    Prefixes that conversations share: a replica sees each use with probability 1/R, so reuse times are R times as long
    (exact where uses are a Poisson process).

    A conversation's own history with sticky routing: as before. With random routing, the last visit to this replica
    was k prompts ago with probability (1/R)(1 - 1/R)^{k-1} (geometric thinning). Then the prompt finds what the
    conversation had k prompts ago, after a sum of k reuse times, taken as independent. How much it had is measured
    (``TrafficSums.lags``). What is not found is written again.
    """
    own, shared = Runs.own(demand.sums), Runs.shared(demand.sums)
    if routing == "random" and replicas > 1:
        own = _thinned(own, _found(demand.sums, replicas), demand.use_seconds)
    return with_runs(demand, own, replace(shared, times=shared.times * replicas)).slower(replicas)


def _found(sums: TrafficSums, replicas: int) -> Array:
    """Share of the reusable blocks of a conversation's last prompt that is found k = 1, 2, ... prompts back; (K,)."""
    blocks = sums.lags.blocks
    had = blocks / blocks[0] if len(blocks) and blocks[0] else np.ones(1)
    # Beyond what is remembered the share goes on falling as it does from the last lag but one to the last.
    fall = had[-1] / had[-2] if len(had) > 1 and had[-2] else 0.0
    had = np.concatenate([had, had[-1] * fall ** np.arange(1, _MOST_LAGS)])
    visited = (1 - 1 / replicas) ** np.arange(len(had)) / replicas
    found = had * visited
    beyond = np.cumsum(found[::-1])[::-1]
    return np.asarray(found[: max(int((beyond > _NEGLIGIBLE).sum()), 1)])


def _thinned(runs: Runs, found: Array, used: float) -> Runs:
    """Runs found at the lags of ``found``: the k-th after a sum of k reuse times, with the times in use in between."""
    if not len(runs.times):
        return runs
    parts = [replace(runs, counts=runs.counts * found[0])]
    one = sum_so_far = _binned(runs)
    for share in found[1:]:
        sum_so_far = _binned(
            Runs(
                (sum_so_far.times[:, None] + one.times + used).ravel(),
                np.repeat(sum_so_far.lengths, len(one.times)),
                (sum_so_far.counts[:, None] * one.counts / one.counts.sum()).ravel(),
            )
        )
        parts.append(replace(sum_so_far, counts=sum_so_far.counts * share))
    return Runs.joined(*parts)


def _binned(runs: Runs) -> Runs:
    """Similar reuse times together, whatever the lengths: 5 % wide, exact sums."""
    places = np.floor(np.log(np.maximum(runs.times, 1e-3)) / np.log(1.05)).astype(int)
    places -= places.min()
    blocks = runs.blocks
    columns = (runs.counts, blocks, runs.times * blocks)
    total, weights, sums = (np.bincount(places, weights=column).astype(float) for column in columns)
    kept = total > 0
    return Runs(sums[kept] / weights[kept], weights[kept] / total[kept], total[kept])

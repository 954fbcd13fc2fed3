"""Theorem 3.1 by experiment: Algorithm 1 at growing capacity, traffic in proportion."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.model.bounds import FiniteBounds
from vllm_hitratio_plugin.model.interarrival import Exponential
from vllm_hitratio_plugin.model.mean_field import MeanField
from vllm_hitratio_plugin.replay.arrivals import poisson
from vllm_hitratio_plugin.replay.generator import Traffic, draw_conversations, generate
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.pools.whole_content import WholeContentLRU
from vllm_hitratio_plugin.replay.turns import Turns, conversation_sample

CAPACITIES = (125, 250, 500, 1000, 2000, 4000, 8000)
BLOCK_SIZE = 128
RATE_PER_BLOCK = 1.5 / 2275
"""λ0 of the scaled system: conversations per second and block of capacity, the paper's experiment 1."""

MEAN_INTERARRIVAL = 60.0
"""μ_F, seconds: short, so that the longest conversations are short compared with the run, as stationarity requires."""

_WARMUP_SECONDS = 3000.0
MEASURED = 20_000
"""Conversations after the warm-up."""


@dataclass(frozen=True)
class Point:
    """One capacity with one seed."""

    capacity_blocks: int
    seed: int
    observed: float
    """h^(N), Algorithm 1."""

    predicted: float
    """h^(∞) for the means of the conversations drawn (25)."""

    characteristic_time: float
    """T_C, seconds (21)."""

    mean_survival: float
    """Mean τ_C^(N) of the contents that were evicted, seconds (14)."""

    survival_deviation: float
    """Root mean square of τ_C^(N) - T_C, seconds: what theorem C.4 says is O(N^-1/2)."""

    bound: float
    """The bound (26) on |h^(N) - h^(∞)|, with the exact last term; it says nothing above 1."""


def run(
    capacity_blocks: int,
    seed: int,
    *,
    conversations: Sequence[Turns] | None = None,
    measured: int = MEASURED,
) -> Point:
    """Algorithm 1 with N blocks and λ0 N conversations per second, stationary, against the limit.

    ``conversations`` are turn lengths to draw from, None for the ShareGPT-like law.
    """
    rate = RATE_PER_BLOCK * capacity_blocks
    warmup = math.ceil(rate * _WARMUP_SECONDS)
    generated = generate(
        draw_conversations(conversations, warmup + measured, seed),
        Traffic(poisson(rate), exponential(MEAN_INTERARRIVAL)),
        block_size=BLOCK_SIZE,
        seed=seed,
        warmup=warmup,
    )
    first = generated.window[0]
    now = 0.0
    used: dict[Hashable, float] = {}
    ages: list[float] = []

    def evicted(content: Hashable) -> None:
        if now >= first:
            ages.append(now - used.pop(content))

    pool = WholeContentLRU(capacity_blocks, BLOCK_SIZE, evicted=evicted)
    hit_blocks = prompt_blocks = 0
    for key, prompt in enumerate(generated.trace.prompts):
        now = used[prompt.blocks[0]] = prompt.time
        hit = pool.admit(key, prompt.tokens, prompt.blocks)
        if now >= first:
            hit_blocks += hit
            prompt_blocks += len(prompt.blocks)

    sample, law = conversation_sample(generated.conversations, BLOCK_SIZE), Exponential(MEAN_INTERARRIVAL)
    limit = MeanField(sample.workload(rate, hashable=False), law)
    predicted, survival = limit.hit_ratio(capacity_blocks), limit.characteristic_time(capacity_blocks)
    if predicted is None or survival is None or not ages:
        raise ValueError(f"{measured} conversations are too few for {capacity_blocks} blocks: nothing was evicted")
    return Point(
        capacity_blocks=capacity_blocks,
        seed=seed,
        observed=hit_blocks / prompt_blocks,
        predicted=predicted,
        characteristic_time=survival,
        mean_survival=float(np.mean(ages)),
        survival_deviation=float(np.sqrt(np.mean((np.array(ages) - survival) ** 2))),
        bound=FiniteBounds(sample, law, rate, capacity_blocks, hashable=False).hit_ratio(tail="exact").value,
    )


def exponent(points: Sequence[Point], value: Callable[[Point], float]) -> float | None:
    """Least-squares slope of log(value, root mean square over seeds) against log N: -1/2 is expected of deviations.

    None where fewer than two capacities have a value above 0.
    """
    squares: dict[int, list[float]] = {}
    for point in points:
        squares.setdefault(point.capacity_blocks, []).append(value(point) ** 2)
    means = {capacity: float(np.mean(values)) for capacity, values in squares.items()}
    kept = [(math.log(capacity), math.log(mean) / 2) for capacity, mean in means.items() if mean > 0]
    if len(kept) < 2:
        return None
    slope, _ = np.polyfit([x for x, _ in kept], [y for _, y in kept], 1)
    return float(slope)

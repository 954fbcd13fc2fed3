"""Hours of the real exporter in seconds: the plugin's monitor on a block pool in virtual time, one page per scrape.

What Prometheus would have stored comes out as OpenMetrics text for ``promtool tsdb create-blocks-from openmetrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.metrics.collector import families
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.replay.arrivals import poisson
from vllm_hitratio_plugin.replay.generator import Traffic, generate
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.sharegpt_like import sharegpt_like
from vllm_hitratio_plugin.replay.simulate import simulate
from vllm_hitratio_plugin.snapshot import Snapshot

BLOCK_SIZE = 128
BLOCK_BYTES = 18 << 20
"""Of Qwen3-8B, 144 KiB per token."""


@dataclass(frozen=True)
class Replica:
    """One engine under ShareGPT-like traffic."""

    instance: str
    model: str = "qwen3-8b"
    engine: str = "0"
    capacity: int = 2275
    rate: float = 1.5
    pause: float = 90.0
    target: float = 0.45
    seed: int = 1
    kept: Callable[[float], float] = lambda age: 1.0
    """Share of the pool's hits that the engine serves, by seconds before the end: below 1, something is wrong."""
    loaded: float = 0.0
    """Share of the tokens beyond its hit that a KV connector loads of a prompt."""


@dataclass
class _Scrapes:
    """Hands the pool's events to the monitor and writes down a page at every scrape."""

    replica: Replica
    monitor: Monitor
    begin: float
    """Unix time of virtual time 0."""
    end: float
    step: float
    store: dict[str, tuple[str, dict[str, list[str]]]]
    next: float = 0.0
    theirs: float = 0.0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def admit(self, access: Access) -> None:
        while access.time >= self.next:
            self.scrape()
        share = self.replica.kept(self.end - (self.begin + access.time))
        if share < 1 and access.hit_tokens:
            blocks = self.random.binomial(access.hit_tokens // BLOCK_SIZE, share)
            access = access._replace(hit_tokens=int(blocks) * BLOCK_SIZE)
        beyond = access.tokens - (access.hit_tokens or 0)
        access = access._replace(external_tokens=int(self.replica.loaded * beyond))
        self.theirs += access.hit_tokens or 0
        self.monitor.admit(access)

    def release(self, time: float, key: Hashable) -> None:
        self.monitor.release(time, key)

    def scrape(self) -> None:
        now = self.begin + self.next
        replica = self.replica
        estimate = self.monitor.refresh(self.next)
        snapshot = Snapshot(
            model_name=replica.model,
            engine=replica.engine,
            version="0.1.0",
            vllm_version="0.32.0",
            unhashed="head",
            wall_time=now,
            capacity_blocks=replica.capacity,
            block_size=BLOCK_SIZE,
            block_bytes=BLOCK_BYTES,
            modelled=True,
            counters=self.monitor.counters,
            estimate=estimate,
            fit_time=now - 2,
            fit_seconds=0.02 + 0.004 * self.random.random(),
            index_blocks=self.monitor.index_blocks,
            index_bytes=self.monitor.index_bytes,
        )
        target = f'job="vllm",instance="{replica.instance}"'
        who = f'{target},model_name="{replica.model}",engine="{replica.engine}"'
        self._keep("up", "gauge", f"up{{{target}}}", 1, now)
        self._keep("vllm_prefix_cache_hits", "counter", f"vllm_prefix_cache_hits_total{{{who}}}", self.theirs, now)
        self._keep("vllm_cache_config_info", "gauge", f'vllm_cache_config_info{{{target},engine="0"}}', 1, now)
        for metric in families([snapshot]):
            for sample in metric.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
                if not sample.name.endswith("_created"):
                    self._keep(metric.name, metric.type, f"{sample.name}{{{target},{labels}}}", sample.value, now)
        self.next += self.step

    def _keep(self, family: str, kind: str, series: str, value: float, now: float) -> None:
        self.store.setdefault(family, (kind, {}))[1].setdefault(series, []).append(f"{float(value)!r} {now:.3f}")


def history(replicas: list[Replica], end: float, hours: float, step: float = 15.0) -> str:
    """Pages of all replicas, from `hours` before Unix time `end` to it."""
    store: dict[str, tuple[str, dict[str, list[str]]]] = {}
    seconds = hours * 3600
    for replica in replicas:
        # Conversations start before the history does, so that it begins in the stationary state.
        before = 40 * replica.pause
        count = int(replica.rate * (seconds + before) * 1.1)
        conversations = sharegpt_like(np.random.default_rng((replica.seed, 0)), count)
        traffic = Traffic(poisson(replica.rate), exponential(replica.pause))
        trace = generate(conversations, traffic, block_size=BLOCK_SIZE, seed=replica.seed).trace
        prompts = [
            prompt._replace(time=prompt.time - before)
            for prompt in trace.prompts
            if before <= prompt.time < before + seconds
        ]
        monitor = Monitor(block_size=BLOCK_SIZE, capacity_blocks=replica.capacity, target=replica.target)
        scrapes = _Scrapes(replica, monitor, end - seconds, end, step, store)
        pool = BlockLRU(replica.capacity, BLOCK_SIZE)
        simulate(
            replace(trace, prompts=prompts),
            pool,
            capacity_blocks=replica.capacity,
            observer=scrapes,
            service=exponential(0.5),
            seed=replica.seed,
        )
        while scrapes.next <= seconds:
            scrapes.scrape()
    lines = []
    for family, (kind, series) in store.items():
        lines.append(f"# TYPE {family} {kind}\n")
        lines.extend(f"{name} {point}\n" for name, points in series.items() for point in points)
    return "".join(lines) + "# EOF\n"

"""A fleet that exists only as numbers: engines that export the plugin's metrics, with values from the flow form.

It feeds a real Prometheus, live over HTTP or backfilled as OpenMetrics text, so that dashboards and rules can be tried
without a model, in states that a real server does not reach on demand.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

BOUNDS = (0.5, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 900, 1800, 3600, 7200)
Labels = tuple[tuple[str, str], ...]


@dataclass
class Engine:
    """One engine; all blocks of 128 tokens, pauses between turns exponential.

    `traffic`, `pause` and `loss` are functions of the time in seconds: conversations per second, mean pause, and the
    share of the predicted hits that the engine loses for no reason the model knows. `tier` is the share of the evicted
    blocks that a KV connector loads.
    """

    model: str = "qwen3-8b"
    engine: str = "0"
    capacity: int = 2275
    target: float = 0.4
    history: float = 38.9
    reusable: float = 22.5
    lifetime: float = 12.9
    turns: float = 4.2
    block_bytes: int = 18 << 20
    traffic: Callable[[float], float] = lambda time: 1.5
    pause: Callable[[float], float] = lambda time: 90.0
    loss: Callable[[float], float] = lambda time: 0.0
    tier: float = 0.0
    seed: int = 1
    version: str = "0.1.0"
    counters: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        sizes = sorted({size for k in range(1, 30) for size in (2**k, 3 * 2 ** (k - 1))})
        self.grid = [size for size in sizes if self.capacity / 16 <= size <= 8 * self.capacity]
        self._now = 0.0
        self._noise = self._model_noise = 0.0

    def _flows(self, time: float) -> tuple[float, float, float, float]:
        rate = self.traffic(time)
        return rate * self.history, rate * self.lifetime, rate * self.reusable, self.pause(time)

    def survival(self, time: float, capacity: float) -> float:
        """T_C, s."""
        _, written, reused, pause = self._flows(time)
        low, high = 0.0, 1e7
        for _ in range(60):
            middle = (low + high) / 2
            used = written * middle + reused * pause * -math.expm1(-middle / pause)
            low, high = (middle, high) if used < capacity else (low, middle)
        return low

    def ratio(self, time: float, capacity: float) -> float:
        """ĥ."""
        prompts, _, reused, pause = self._flows(time)
        return reused / prompts * -math.expm1(-self.survival(time, capacity) / pause) if prompts else 0.0

    def recommended(self, time: float) -> float | None:
        """N for the target."""
        prompts, written, reused, pause = self._flows(time)
        if not prompts or self.target >= reused / prompts:
            return None
        survival = -pause * math.log1p(-self.target * prompts / reused)
        return written * survival + reused * pause * -math.expm1(-survival / pause)

    def advance(self, time: float, seconds: float) -> None:
        """Serve `seconds` of traffic that end at `time`."""
        self._now = time
        prompts, _, reused, pause = self._flows(time)
        blocks = prompts * seconds * max(self._random.gauss(1, 0.03), 0)
        self._noise = 0.97 * self._noise + self._random.gauss(0, 0.0012)
        self._model_noise = 0.97 * self._model_noise + self._random.gauss(0, 0.0008)
        predicted = self.ratio(time, self.capacity)
        ceiling = reused / prompts if prompts else 0.0
        shadow = min(max(predicted + self._model_noise, 0), 1)
        hit = min(max((shadow + self._noise / 3) * (1 - self.loss(time)), 0), 1)
        self._add("hitratio_prompt_blocks_total", blocks)
        self._add("hitratio_prompt_tokens_total", blocks * 124)
        self._add("hitratio_hit_blocks_total", blocks * hit)
        self._add("hitratio_hit_tokens_total", blocks * hit * 128)
        loaded = self.tier * max(ceiling - max(shadow, hit), 0)
        self._add("hitratio_external_hit_tokens_total", blocks * loaded * 124)
        self._add("vllm:prefix_cache_hits_total", blocks * hit * 128)
        self._add("vllm:prefix_cache_queries_total", blocks * 124)
        self._add("hitratio_predicted_hit_blocks_total", blocks * predicted, estimator="reuse_time")
        self._add("hitratio_predicted_hit_blocks_total", blocks * predicted * 0.93, estimator="mean_field")
        for size in self.grid:
            at_size = blocks * self.ratio(time, size)
            self._add("hitratio_curve_hit_blocks_total", at_size, capacity_blocks=str(size))
            self._add("hitratio_shadow_curve_hit_blocks_total", at_size * 0.99, capacity_blocks=str(size))
        self._add("hitratio_curve_hit_blocks_total", blocks * ceiling, capacity_blocks="+Inf")
        self._add("hitratio_shadow_hit_blocks_total", blocks * shadow)
        partial = 0.5 * self.turns / self.history
        outcomes = {
            ("hit", "local"): hit,
            ("partial", "tail"): partial,
            ("compulsory", "diverged"): 0.02,
            ("hit", "external"): loaded,
            ("in_flight", "prefill"): 0,
            ("capacity", "evicted"): max(ceiling - max(shadow, hit), 0) - loaded,
            ("unexplained", "missing"): max(shadow - hit, 0),
            ("unexplained", "reset"): 0,
        }
        outcomes["compulsory", "new"] = max(1 - sum(outcomes.values()), 0)
        for (outcome, reason), share in outcomes.items():
            self._add("hitratio_prompt_blocks_by_outcome_total", blocks * share, outcome=outcome, reason=reason)
        turns = self.traffic(time) * (self.turns - 1) * seconds
        for bound in (*BOUNDS, math.inf):
            self._add("hitratio_interarrival_seconds_bucket", turns * -math.expm1(-bound / pause), le=_bound(bound))
        self._add("hitratio_interarrival_seconds_count", turns)
        self._add("hitratio_interarrival_seconds_sum", turns * pause)
        self._add("hitratio_cache_resets_total", 0)
        self._gauges = self._fit(time, hit, predicted, shadow, ceiling)

    def _fit(self, time: float, hit: float, predicted: float, shadow: float, ceiling: float) -> dict[str, float | None]:
        idle = self.traffic(time) == 0
        recommended = self.recommended(time)
        ready: dict[str, float | None] = {
            "hitratio_observed_ratio": hit,
            'hitratio_predicted_ratio{estimator="reuse_time"}': predicted,
            'hitratio_predicted_ratio{estimator="mean_field"}': predicted * 0.93,
            'hitratio_predicted_ratio_stderr{estimator="reuse_time"}': 0.006,
            'hitratio_predicted_ratio_stderr{estimator="mean_field"}': 0.008,
            "hitratio_infinite_cache_ratio": ceiling,
            "hitratio_divergence_ratio": hit - predicted,
            "hitratio_divergence_ratio_stderr": 0.005,
            "hitratio_engine_divergence_ratio": hit - shadow,
            "hitratio_engine_divergence_ratio_stderr": 0.002,
            "hitratio_model_divergence_ratio": predicted - shadow,
            "hitratio_model_divergence_ratio_stderr": 0.004,
            "hitratio_conversation_arrival_rate": self.traffic(time),
            "hitratio_history_workload_blocks": self.history,
            "hitratio_reusable_workload_blocks": self.reusable,
            "hitratio_lifetime_blocks": self.lifetime + 0.3 * math.sin(time / 700),
            "hitratio_turns_per_conversation": self.turns + 0.1 * math.sin(time / 900),
            "hitratio_characteristic_time_seconds": self.survival(time, self.capacity),
            "hitratio_target_reachable": float(recommended is not None),
            "hitratio_recommended_capacity_blocks": recommended,
            "hitratio_recommended_capacity_bytes": recommended and recommended * self.block_bytes,
        }
        return {
            **({} if idle else ready),
            "hitratio_capacity_blocks": self.capacity,
            "hitratio_capacity_bytes": self.capacity * self.block_bytes,
            "hitratio_block_size_tokens": 128,
            "hitratio_in_use_blocks": 0 if idle else 60 + 8 * math.sin(time / 400),
            "hitratio_target_ratio": self.target,
            "hitratio_window_seconds": 600,
            "hitratio_last_fit_timestamp_seconds": time - 3,
            "hitratio_fit_duration_seconds": 0.02 + 0.002 * math.sin(time / 200),
            'hitratio_degraded{reason="prefix_caching_off"}': 0,
            "hitratio_index_blocks": min(8 * self.capacity, 900 + 3 * (time % 86400)),
            "hitratio_index_bytes": min(8 * self.capacity, 900 + 3 * (time % 86400)) * 310,
            f'hitratio_build_info{{version="{self.version}",vllm_version="0.32.0",unhashed="head"}}': 1,
            "vllm:cache_config_info": 1,
        }

    def _add(self, name: str, amount: float, **labels: str) -> None:
        key = name + ("{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}" if labels else "")
        self.counters[key] = self.counters.get(key, 0.0) + amount

    def samples(self) -> Iterator[tuple[str, str, float]]:
        """Everything the engine exports now: (name, labels, value)."""
        own = f'model_name="{self.model}",engine="{self.engine}"'
        for key, value in (*self.counters.items(), *self._gauges.items()):
            if value is None:
                continue
            name, _, more = key.partition("{")
            yield name, own + ("," + more.rstrip("}") if more else ""), value


def _bound(value: float) -> str:
    return "+Inf" if value == math.inf else repr(float(value))


def text(engines: Iterable[Engine]) -> str:
    """The engines' page of metrics, in the Prometheus text format."""
    families: dict[str, list[str]] = {}
    for engine in engines:
        for name, labels, value in engine.samples():
            families.setdefault(family(name), []).append(f"{name}{{{labels}}} {value!r}\n")
    return "".join(f"# TYPE {name} {kind(name)}\n" + "".join(lines) for name, lines in families.items())


def family(name: str) -> str:
    """The metric that a sample belongs to."""
    for suffix in ("_bucket", "_count", "_sum"):
        if name.endswith("interarrival_seconds" + suffix):
            return name.removesuffix(suffix)
    return name


def kind(name: str) -> str:
    """Its type."""
    if name.endswith("interarrival_seconds"):
        return "histogram"
    return "counter" if name.endswith("_total") else "gauge"


def history(targets: dict[str, list[Engine]], start: float, end: float, step: float, job: str = "vllm") -> str:
    """What Prometheus would have scraped from the targets, as text for ``promtool tsdb create-blocks-from``.

    vLLM's own names are written as Prometheus 2 stores them, without the colon.
    """
    series: dict[str, dict[str, list[str]]] = {}
    time = start
    while time <= end:
        for instance, engines in targets.items():
            target = f'job="{job}",instance="{instance}"'
            series.setdefault("up", {}).setdefault(f"up{{{target}}}", []).append(f"1 {time:.3f}")
            for engine in engines:
                engine.advance(time, step)
                for name, labels, value in engine.samples():
                    name = name.replace("vllm:", "vllm_")
                    key = f"{name}{{{target},{labels}}}"
                    series.setdefault(family(name), {}).setdefault(key, []).append(f"{value!r} {time:.3f}")
        time += step
    lines = []
    for name, members in series.items():
        declared = name.removesuffix("_total") if kind(name) == "counter" else name
        lines.append(f"# TYPE {declared} {kind(name)}\n")
        for key, points in members.items():
            lines.extend(f"{key} {point}\n" for point in points)
    return "".join(lines) + "# EOF\n"


def fleet() -> dict[str, list[Engine]]:
    """Three targets, four engines: a busy one, a quieter one that goes wrong, and two ranks of another model."""
    return {
        "10.0.0.1:8000": [Engine(traffic=wave(1.5, 0.25, 1800), pause=wave(90, 0.1, 2500), tier=0.4, seed=1)],
        "10.0.0.2:8000": [
            Engine(traffic=wave(1.1, 0.2, 1500, 1), pause=wave(120, 0.1, 2100), seed=2),
        ],
        "10.0.0.3:8000": [
            Engine(
                model="llama-3-70b",
                engine=rank,
                capacity=6144,
                target=0.5,
                history=61,
                reusable=44,
                lifetime=17.5,
                turns=5.6,
                block_bytes=40 << 20,
                traffic=wave(0.7, 0.3, 2000, float(rank)),
                pause=wave(240, 0.1, 3000),
                seed=3 + int(rank),
            )
            for rank in ("0", "1")
        ],
    }


def wave(base: float, depth: float, period: float, phase: float = 0.0) -> Callable[[float], float]:
    """A quantity that comes and goes."""
    return lambda time: base * (1 + depth * math.sin(time / period + phase))

"""vLLM's own metrics, as far as they are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from prometheus_client.samples import Sample

from vllm_hitratio_plugin.metrics.series import Identity, identity_of
from vllm_hitratio_plugin.snapshot import VllmCounters

#: Counters, and the field of ``VllmCounters`` that each becomes.
COUNTERS = {
    "vllm:prefix_cache_queries_total": "queries",
    "vllm:prefix_cache_hits_total": "hits",
    "vllm:external_prefix_cache_queries_total": "external_queries",
    "vllm:external_prefix_cache_hits_total": "external_hits",
    "vllm:num_preemptions_total": "preemptions",
}

#: Its labels are the configuration of an engine's cache.
CACHE_CONFIG = "vllm:cache_config_info"

#: Ray puts a prefix before the names, and an underscore in place of the colon (docs/vllm.md#metrics-behind-ray).
_PREFIX = re.compile(r"(ray_)?vllm[:_]")


def vllm_counters(samples: Iterable[Sample]) -> dict[Identity, VllmCounters]:
    """vLLM's figures by engine; a page without counters still tells the engines' configurations."""
    values: dict[Identity, dict[str, float]] = {}
    configs: list[Mapping[str, str]] = []
    for sample in samples:
        name = _PREFIX.sub("vllm:", sample.name, count=1)
        if name in COUNTERS:
            values.setdefault(identity_of(sample.labels), {})[COUNTERS[name]] = sample.value
        elif name == CACHE_CONFIG:
            configs.append(sample.labels)
    if not values:
        shared = set.intersection(*(set(config.items()) for config in configs)) if configs else set()
        return {
            engine: _counters(engine, {}, config)
            for config in configs
            # Labels that name the engine can't be told from those that configure it: what differs is what counts.
            for engine in [identity_of(dict(config.items() - shared | {("engine", config.get("engine", "0"))}))]
        }
    return {engine: _counters(engine, found, _config_of(engine, configs)) for engine, found in values.items()}


def _config_of(engine: Identity, configs: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    """The configuration whose labels contradict none of the engine's; nothing where several do not."""
    named = {"engine": engine.engine, **dict(engine.labels)}  # it has no model_name
    fitting = [config for config in configs if all(config.get(label, value) == value for label, value in named.items())]
    return fitting[0] if len(fitting) == 1 else {}


def _counters(engine: Identity, values: Mapping[str, float], config: Mapping[str, str]) -> VllmCounters:
    blocks = _whole(config.get("num_gpu_blocks"))
    return VllmCounters(
        model_name=engine.model_name,
        engine=engine.engine,
        caching={"true": True, "false": False}.get(config.get("enable_prefix_caching", "").lower()),
        block_size=_whole(config.get("block_size")),
        # vLLM keeps one null block.
        capacity_blocks=None if blocks is None else blocks - 1,
        capacity_tokens=_whole(config.get("kv_cache_size_tokens")),
        labels=dict(engine.labels),
        **values,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None

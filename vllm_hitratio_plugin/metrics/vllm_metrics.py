"""vLLM's own metrics, as far as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.samples import Sample

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


def vllm_counters(samples: Iterable[Sample]) -> dict[tuple[str, str], VllmCounters]:
    """vLLM's figures by (model_name, engine); a page without counters still tells the engines' configurations."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    configs: dict[str, Mapping[str, str]] = {}
    for sample in samples:
        key = (sample.labels.get("model_name", ""), sample.labels.get("engine", "0"))
        if sample.name in COUNTERS:
            values.setdefault(key, {})[COUNTERS[sample.name]] = sample.value
        elif sample.name == CACHE_CONFIG:
            configs[key[1]] = sample.labels  # it has no model_name
    engines = values or {("", engine): {} for engine in configs}
    return {
        (model, engine): _counters(model, engine, found, configs.get(engine, {}))
        for (model, engine), found in engines.items()
    }


def _counters(model: str, engine: str, values: Mapping[str, float], config: Mapping[str, str]) -> VllmCounters:
    blocks = _whole(config.get("num_gpu_blocks"))
    return VllmCounters(
        model_name=model,
        engine=engine,
        caching={"true": True, "false": False}.get(config.get("enable_prefix_caching", "").lower()),
        block_size=_whole(config.get("block_size")),
        # vLLM keeps one null block.
        capacity_blocks=None if blocks is None else blocks - 1,
        **values,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None

"""Names that queries may use. A query that reads an unknown metric stops the generation."""

from __future__ import annotations

import re
from dataclasses import replace

from vllm_hitratio_plugin.metrics.families import FAMILIES
from vllm_hitratio_plugin.model.drift import FACTORS as _FACTORS
from vllm_hitratio_plugin.workload.ledger import FATES as _OUTCOMES

# SWITCH HERE when the code itself has the final names: METRICS from vllm_hitratio_plugin.metrics.catalogue, OUTCOMES
# from vllm_hitratio_plugin.snapshot, FACTORS from vllm_hitratio_plugin.model.drift; _RENAMED and _final go.
_RENAMED = {
    "hitratio_prompts": "hitratio_requests",
    "hitratio_blocks": "hitratio_prompt_blocks_by_outcome",
    "hitratio_stale_blocks": "hitratio_unreused_history_blocks",
    "hitratio_later_turns": "hitratio_follow_up_turns",
    "hitratio_turns_elsewhere": "hitratio_follow_up_turns_unmatched",
    "hitratio_ceiling_ratio": "hitratio_infinite_cache_ratio",
    "hitratio_gap_ratio": "hitratio_divergence_ratio",
    "hitratio_gap_stderr": "hitratio_divergence_ratio_stderr",
    "hitratio_model_gap_ratio": "hitratio_model_divergence_ratio",
    "hitratio_model_gap_stderr": "hitratio_model_divergence_ratio_stderr",
    "hitratio_engine_gap_ratio": "hitratio_engine_divergence_ratio",
    "hitratio_engine_gap_stderr": "hitratio_engine_divergence_ratio_stderr",
    "hitratio_drift_ratio": "hitratio_drift_contribution_ratio",
    "hitratio_arrival_rate": "hitratio_conversation_arrival_rate",
    "hitratio_longest_prompt_tokens": "hitratio_max_model_length_tokens",
    "hitratio_pinned_blocks": "hitratio_in_use_blocks",
    "hitratio_window_prompts": "hitratio_window_requests",
    "fate": "outcome",
    "cold": "compulsory",
    "size": "conversation_size",
    "gaps": "reuse_times",
    "ceiling": "reusable_share",
    "pinned": "blocks_in_use",
}


def _final(*names: str) -> tuple[str, ...]:
    return tuple(_RENAMED.get(name, name) for name in names)


METRICS = [replace(family, name=_final(family.name)[0], labels=_final(*family.labels)) for family in FAMILIES]
OUTCOMES, FACTORS = _final(*_OUTCOMES), _final(*_FACTORS)

_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}

#: The plugin's metrics, as queries spell them.
EXPORTED = {metric.name + suffix for metric in METRICS for suffix in _SUFFIXES[metric.kind]}

#: vLLM's own that queries read. Prometheus 2 stores them without the colon (prometheus_client 0.23 and newer).
VLLM = {f"vllm{sign}{name}" for sign in ":_" for name in ("prefix_cache_hits_total", "cache_config_info")}

_METRIC = re.compile(r"\bhitratio_\w+|\bvllm[:_](?:prefix_cache|cache_config)_\w+")
_RECORDED = re.compile(r"\b(?:engine|model_name|fleet):hitratio_\w+:\w+")


def metrics_in(expression: str) -> list[str]:
    """Names of the metrics that a query reads, recorded series left out; raises LookupError on an unknown name."""
    found = list(dict.fromkeys(_METRIC.findall(_RECORDED.sub("", expression))))
    if unknown := set(found) - EXPORTED - VLLM:
        raise LookupError(f"nobody exports {', '.join(sorted(unknown))}, queried by {expression}")
    return found


def recorded_in(expression: str) -> list[str]:
    """Names of the recorded series that a query reads."""
    return list(dict.fromkeys(_RECORDED.findall(expression)))

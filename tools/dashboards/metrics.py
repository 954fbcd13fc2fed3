"""Names that queries may use. A query that reads an unknown metric stops the generation."""

from __future__ import annotations

import re

from vllm_hitratio_plugin.metrics.catalogue import METRICS
from vllm_hitratio_plugin.model.drift import FACTORS
from vllm_hitratio_plugin.snapshot import OUTCOMES as _OUTCOMES_AND_REASONS

__all__ = ["EXPORTED", "FACTORS", "METRICS", "OUTCOMES", "metrics_in", "recorded_in"]

OUTCOMES = tuple(dict.fromkeys(outcome for outcome, _ in _OUTCOMES_AND_REASONS))

#: The plugin's metrics, as queries spell them.
EXPORTED = {name for metric in METRICS for name in metric.sample_names}

#: vLLM's own that queries read. Prometheus 2 stores them without the colon (prometheus_client 0.23 and newer).
VLLM = {f"vllm{sign}{name}" for sign in ":_" for name in ("prefix_cache_hits_total", "cache_config_info")}

_METRIC = re.compile(r"\bhitratio_\w+|\bvllm[:_](?:prefix_cache|cache_config)_\w+")
_RECORDED = re.compile(r"\b(?:engine|model_name|fleet):hitratio_\w+:\w+")


def metrics_in(expression: str) -> list[str]:
    """Names of the metrics that a query reads, recorded series left out; raises LookupError on an unknown name."""
    found = list(dict.fromkeys(_METRIC.findall(_RECORDED.sub("", expression))))
    if unknown := set(found) - EXPORTED - VLLM:
        raise LookupError(f"no metric is named {', '.join(sorted(unknown))}, queried by {expression}")
    return found


def recorded_in(expression: str) -> list[str]:
    """Names of the recorded series that a query reads."""
    return list(dict.fromkeys(_RECORDED.findall(expression)))

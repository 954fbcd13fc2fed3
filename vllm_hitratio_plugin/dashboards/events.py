"""What is drawn on all panels: firing alerts, cache resets."""

from __future__ import annotations

from vllm_hitratio_plugin.dashboards.dashboard import MATCHERS
from vllm_hitratio_plugin.dashboards.promql import Source

_on = Source(MATCHERS)

#: (name, colour, PromQL, text)
EVENTS = (
    (
        "Alert firing",
        "red",
        'max by (alertname, model_name, engine) (ALERTS{alertname=~"HitRatio.+", alertstate="firing", job=~"$job"})',
        "{{alertname}} {{model_name}} engine {{engine}}",
    ),
    (
        "Prefix cache reset",
        "purple",
        f"max by (instance, engine) (increase({_on('hitratio_cache_resets_total')}[1m])) > 0",
        "{{instance}} engine {{engine}}",
    ),
)

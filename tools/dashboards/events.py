"""Events that are drawn on all panels: firing alerts and cache resets."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from tools.dashboards.metrics import metrics_in
from tools.dashboards.variables import CHOSEN, DATA_SOURCE

#: Name, colour, query, text.
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
        f"max by (instance, engine) (increase({CHOSEN('hitratio_cache_resets_total')}[1m])) > 0",
        "{{instance}} engine {{engine}}",
    ),
)


def events() -> list[builders.AnnotationQuery]:
    """Grafana's own, then the events."""
    grafana = models.DataSourceRef(type_val="grafana", uid="-- Grafana --")
    own = builders.AnnotationQuery().name("Annotations & Alerts").type("dashboard").built_in(1)
    own.datasource(grafana).icon_color("rgba(0, 211, 255, 1)").enable(True).hide(True)
    drawn = []
    for name, color, expr, _ in EVENTS:
        metrics_in(expr)
        event = builders.AnnotationQuery().name(name).datasource(DATA_SOURCE).icon_color(color).expr(expr)
        drawn.append(event.enable(True).hide(False))
    return [own, *drawn]


def add_texts(dashboard: dict[str, Any]) -> None:
    """Add to a dashboard's JSON what the SDK's annotations lack: how Prometheus events are labelled."""
    for annotation, (name, _, _, text) in zip(dashboard["annotations"]["list"][1:], EVENTS, strict=True):
        annotation.update({"step": "30s", "titleFormat": name, "textFormat": text, "useValueForTime": False})

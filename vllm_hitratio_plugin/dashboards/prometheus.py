"""Prometheus' rule groups: recording rules and alerts."""

from __future__ import annotations

from vllm_hitratio_plugin.dashboards.alerts import Alert, alerts
from vllm_hitratio_plugin.dashboards.links import Links
from vllm_hitratio_plugin.dashboards.panel import Json
from vllm_hitratio_plugin.dashboards.recording import recordings


def groups(links: Links) -> list[Json]:
    """The groups of a rules file, or of a PrometheusRule."""
    return [
        {
            "name": "hitratio.recording",
            "interval": "30s",
            "rules": [{"record": rule.name, "expr": _over_lines(rule.expr)} for rule in recordings()],
        },
        {"name": "hitratio.alerts", "interval": "30s", "rules": [_rule(alert, links) for alert in alerts()]},
    ]


def _over_lines(expr: str) -> str:
    """Numerator and denominator on lines of their own."""
    return expr.replace(" / (", "\n/ (")


def dashboard_variables(labelled: bool = True) -> str:
    """Query string that opens a dashboard on what the alert is about."""
    names = ("model_name", "instance", "engine") if labelled else ("instance",)
    return "&".join(f"var-{name}={{{{ $labels.{name} }}}}" for name in names)


def _rule(alert: Alert, links: Links) -> Json:
    labelled = "model_name" in alert.summary
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.wait,
        **({"keep_firing_for": alert.keep} if alert.keep else {}),
        "labels": {"severity": alert.severity, "component": "hitratio"},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "dashboard_url": links.dashboard(alert.dashboard, dashboard_variables(labelled)),
            "runbook_url": links.runbook(alert.name),
        },
    }

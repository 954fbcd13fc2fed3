"""Prometheus' rule groups: recording rules and alerts."""

from __future__ import annotations

from typing import Any

from tools.dashboards.alerts import alerts
from tools.dashboards.recording import recordings


def groups() -> list[dict[str, Any]]:
    """The groups of a rules file, or of a PrometheusRule."""
    # Numerator and denominator on lines of their own.
    records = [{"record": name, "expr": expr.replace(" / (", "\n/ (")} for name, expr in recordings().items()]
    return [
        {"name": "hitratio.recording", "interval": "30s", "rules": records},
        {"name": "hitratio.alerts", "interval": "30s", "rules": [alert.rule for alert in alerts()]},
    ]

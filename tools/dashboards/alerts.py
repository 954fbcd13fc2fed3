"""The alerts of alerts.yaml, the same for Prometheus and Grafana."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

from tools.dashboards import thresholds
from tools.dashboards.metrics import metrics_in
from tools.dashboards.promql import ENGINE
from vllm_hitratio_plugin.grafana.links import GRAFANA_BASE, RUNBOOK_BASE

FILE = Path(__file__).with_name("alerts.yaml")

_WHO = "Engine {{ $labels.engine }} of {{ $labels.model_name }} on {{ $labels.instance }}"


@dataclass(frozen=True)
class Alert:
    """An alerting rule of Prometheus, and the panel that shows the problem."""

    rule: dict[str, Any]
    panel: str
    dashboard: str

    @property
    def name(self) -> str:
        """Also the name of its runbook."""
        return str(self.rule["alert"])


def alerts() -> list[Alert]:
    """All alerts, in the order of the file."""
    values: dict[str, Any] = {"WHO": _WHO, "ENGINE": ENGINE}
    values |= {name: f"{value:g}" for name, value in vars(thresholds).items() if name.isupper()}
    for name, window in (("BUSY", "5m"), ("BUSY_1H", "1h")):
        values[name] = f"engine:hitratio_prompt_tokens:rate{window} > {values['TRAFFIC_FLOOR']}"
    return [_alert(**source) for source in yaml.safe_load(Template(FILE.read_text()).safe_substitute(values))]


def _alert(
    severity: str, summary: str, description: str, panel: str, dashboard: str = "hitratio-overview", **rule: str
) -> Alert:
    metrics_in(rule["expr"])
    about = ("model_name", "instance", "engine") if "model_name" in summary else ("instance",)
    variables = "&".join(f"var-{name}={{{{ $labels.{name} }}}}" for name in about)
    annotations = {
        "summary": summary,
        "description": description,
        "dashboard_url": f"{GRAFANA_BASE}/d/{dashboard}?{variables}",
        "runbook_url": f"{RUNBOOK_BASE}/{rule['alert']}.md",
    }
    labels = {"severity": severity, "component": "hitratio"}
    return Alert({**rule, "labels": labels, "annotations": annotations}, panel, dashboard)

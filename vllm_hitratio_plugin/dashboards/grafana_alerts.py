"""The same alerts as Grafana-managed rules: for file provisioning, and for the alerting HTTP API.

They need no recording rules in Prometheus: recorded series are replaced by their queries.
"""

from __future__ import annotations

from vllm_hitratio_plugin.dashboards import fleet, overview
from vllm_hitratio_plugin.dashboards.alerts import Alert, alerts, inlined
from vllm_hitratio_plugin.dashboards.links import Links
from vllm_hitratio_plugin.dashboards.panel import Json

#: The Prometheus data source that the rules query, as the provisioning file of this repository names it.
DATA_SOURCE_UID = "prometheus"

FOLDER_UID = "hitratio"
FOLDER_TITLE = "vLLM hit ratio"
GROUP = "hitratio"
INTERVAL_SECONDS = 60


def provisioning(links: Links) -> Json:
    """Content of a file in Grafana's `provisioning/alerting` folder."""
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": GROUP,
                "folder": FOLDER_TITLE,
                "interval": f"{INTERVAL_SECONDS}s",
                "rules": [rule(alert, links, DATA_SOURCE_UID) for alert in alerts()],
            }
        ],
    }


def api_rules(links: Links, data_source: str) -> list[Json]:
    """Bodies for `/api/v1/provisioning/alert-rules`."""
    return [
        {**rule(alert, links, data_source), "orgID": 1, "folderUID": FOLDER_UID, "ruleGroup": GROUP}
        for alert in alerts()
    ]


def rule(alert: Alert, links: Links, data_source: str) -> Json:
    """One rule; it fires for every series that the query returns, whatever its value."""
    return {
        "uid": uid(alert),
        "title": alert.name,
        "condition": "B",
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": 600, "to": 0},
                "datasourceUid": data_source,
                "model": {"refId": "A", "expr": inlined(alert.expr), "instant": True, "range": False},
            },
            {
                "refId": "B",
                "relativeTimeRange": {"from": 600, "to": 0},
                "datasourceUid": "__expr__",
                "model": {"refId": "B", "type": "math", "expression": "is_number($A)"},
            },
        ],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": alert.wait,
        "annotations": {
            "summary": alert.summary,
            "description": alert.description.replace("$value", "$values.A.Value"),
            "runbook_url": links.runbook(alert.name),
            "__dashboardUid__": alert.dashboard,
            "__panelId__": str(_panel_id(alert)),
        },
        "labels": {"severity": alert.severity, "component": "hitratio"},
        "isPaused": False,
    }


def _panel_id(alert: Alert) -> int:
    page = {overview.UID: overview.overview, fleet.UID: fleet.fleet}[alert.dashboard]()
    return page.panel_id(alert.panel)


def uid(alert: Alert) -> str:
    """Stable identity of a rule."""
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in alert.name)
    return words.strip("-").replace("hit-ratio", "hitratio", 1)

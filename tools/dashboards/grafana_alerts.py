"""The same alerts as Grafana-managed rules. They need no recording rules in Prometheus."""

from __future__ import annotations

import json
import re
from typing import Any

from grafana_foundation_sdk.builders import alerting, expr, prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.alerting import RelativeTimeRange

from tools.dashboards.alerts import Alert, alerts
from tools.dashboards.page import Json, panel_id
from tools.dashboards.recording import inlined
from vllm_hitratio_plugin.grafana.names import DATA_SOURCE_UID, FOLDER_TITLE, GROUP

#: Where the HTTP API wants organisation, folder and group; a file has them above the rules.
_OF_THE_API = {"orgID", "folderUID", "ruleGroup"}


def provisioning(pages: dict[str, Json]) -> Json:
    """Content of a file in Grafana's `provisioning/alerting` folder; `pages` by uid, for links to their panels."""
    rules = [_rule(alert, pages[alert.dashboard]) for alert in alerts()]
    group = {"orgId": 1, "name": GROUP, "folder": FOLDER_TITLE, "interval": "60s", "rules": rules}
    return {"apiVersion": 1, "groups": [group]}


def uid(alert: Alert) -> str:
    """Stable identity of a rule, such as hitratio-below-prediction."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", alert.name).lower().replace("hit-ratio", "hitratio")


def _rule(alert: Alert, page: Json) -> dict[str, Any]:
    """A rule that fires for every series of the query, whatever its value."""
    rule = alerting.Rule(alert.name).uid(uid(alert)).condition("B").for_val(alert.rule["for"]).is_paused(False)
    rule.no_data_state("OK").exec_err_state("Error").labels(alert.rule["labels"])
    texts = alert.rule["annotations"]
    rule.annotations(
        {
            "summary": texts["summary"],
            "description": texts["description"].replace("$value", "$values.A.Value"),
            "runbook_url": texts["runbook_url"],
            "__dashboardUid__": alert.dashboard,
            "__panelId__": str(panel_id(page, alert.panel)),
        }
    )
    condition = prometheus.Dataquery().expr(inlined(alert.rule["expr"])).instant().ref_id("A")
    there = expr.TypeMath().expression("is_number($A)").ref_id("B")
    window = RelativeTimeRange(from_val=600, to=0)
    rule.with_query(alerting.Query("A").datasource_uid(DATA_SOURCE_UID).relative_time_range(window).model(condition))
    rule.with_query(alerting.Query("B").datasource_uid("__expr__").relative_time_range(window).model(there))
    built = json.loads(JSONEncoder().encode(rule.build()))
    return {key: value for key, value in built.items() if key not in _OF_THE_API}

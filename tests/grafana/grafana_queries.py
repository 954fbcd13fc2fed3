"""The generated files as the tests read them, and the queries as Grafana would send them."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
GRAFANA = ROOT / "grafana"
RUNBOOKS = ROOT / "docs" / "runbooks"

Json = dict[str, Any]

PAGES: list[Json] = [
    json.loads((GRAFANA / "dashboards" / f"{name}.json").read_text()) for name in ("overview", "fleet")
]

_RECORDS, _ALERTS = (
    group["rules"] for group in yaml.safe_load((GRAFANA / "prometheus" / "rules.yml").read_text())["groups"]
)

#: Alerting rules of Prometheus, and the same of Grafana.
ALERTS: list[Json] = _ALERTS
GRAFANA_ALERTS: list[Json] = yaml.safe_load((GRAFANA / "alerting" / "hitratio.yaml").read_text())["groups"][0]["rules"]

#: Query by name of the recorded series.
RECORDED: dict[str, str] = {rule["record"]: rule["expr"] for rule in _RECORDS}

#: What Grafana fills in while nothing is selected on the page.
VALUES = {
    "__rate_interval": "1m",
    "__interval": "15s",
    "__range": "1h",
    "window": "10m",
    "job": ".+",
    "model_name": ".+",
    "instance": ".+",
    "engine": ".+",
}


def panels(page: Json) -> list[Json]:
    """All panels but the titles of rows, in the order of the page."""
    every = [each for panel in page["panels"] for each in (panel, *panel.get("panels", ()))]
    return [panel for panel in every if panel["type"] != "row"]


def expressions(panel: Json) -> list[str]:
    """The panel's queries, variables not filled in."""
    return [target["expr"] for target in panel["targets"]]


def filled(expr: str, values: Mapping[str, str] = VALUES) -> str:
    """The query with its variables replaced; raises KeyError on one that is not known."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], expr)


def queries(page: Json) -> Iterator[tuple[str, str]]:
    """(where, PromQL) of panels and annotations."""
    for panel in panels(page):
        for target in panel["targets"]:
            yield f"{page['uid']}: {panel['title']} [{target['refId']}]", filled(target["expr"])
    for annotation in page["annotations"]["list"]:
        if "expr" in annotation:
            yield f"{page['uid']}: annotation {annotation['name']}", filled(annotation["expr"])


def runbook_queries() -> Iterator[tuple[str, str]]:
    """(file, PromQL) of all runbooks."""
    for path in RUNBOOKS.glob("*.md"):
        for query in re.findall(r"```promql\n(.*?)```", path.read_text(), re.DOTALL):
            yield path.name, query

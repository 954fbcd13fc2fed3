"""The pages to open, and whether every query of the dashboards returns data."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import yaml

from examples.observability.stack import Stack, StackError

GRAFANA = Path(__file__).resolve().parents[2] / "grafana"

GRAPHS = (
    "engine:hitratio_observed:ratio_rate5m or engine:hitratio_predicted:ratio_rate5m",
    "engine:hitratio_divergence:ratio_rate5m",
    "sum by (outcome) (rate(hitratio_prompt_blocks_by_outcome_total[1m]))",
    'ALERTS{alertname=~"HitRatio.+"}',
)
"""The graphs for a reader without Grafana."""


def graph_address(stack: Stack, minutes: float) -> str:
    """Prometheus' own graphs of :data:`GRAPHS`."""
    parameters: dict[str, str] = {}
    for number, expr in enumerate(GRAPHS):
        parameters |= {
            f"g{number}.expr": expr,
            f"g{number}.tab": "0",
            f"g{number}.range_input": f"{max(round(minutes), 1)}m",
        }
    return f"{stack.prometheus_url}/graph?{urlencode(parameters)}"


@dataclass(frozen=True)
class Answer:
    """The result of one query."""

    where: str
    expr: str
    series: int
    error: str | None = None


def ask_everything(stack: Stack, window: str) -> Iterator[Answer]:
    """Ask every query of every panel, and every recorded series."""
    values = {"__rate_interval": "30s", "__range": "10m", "window": window}
    values |= dict.fromkeys(("job", "model_name", "instance", "engine"), ".+")
    for path in sorted((GRAFANA / "dashboards").glob("*.json")):
        page = json.loads(path.read_text())
        for panel in [each for row in page["panels"] for each in (row, *row.get("panels", ()))]:
            for target in panel.get("targets", ()):
                expr = re.sub(r"\$(\w+)", lambda match: values[match[1]], target["expr"])
                yield _ask(stack, f"{page['title']}: {panel['title']} [{target['refId']}]", expr)
    for group in yaml.safe_load((GRAFANA / "prometheus" / "rules.yml").read_text())["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                yield _ask(stack, f"recorded: {rule['record']}", rule["record"])


def ask_alerts(stack: Stack) -> Iterator[Answer]:
    """Ask the alerts' conditions, on the exported metrics alone; an empty result is fine."""
    for group in yaml.safe_load((GRAFANA / "alerting" / "hitratio.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield _ask(stack, f"alert: {rule['title']}", rule["data"][0]["model"]["expr"])


def ask_again(stack: Stack, answer: Answer) -> Answer:
    """The same answer if it has data, else a new one: what compares two windows has no data at first."""
    return answer if answer.series or answer.error else _ask(stack, answer.where, answer.expr)


def _ask(stack: Stack, where: str, expr: str) -> Answer:
    try:
        return Answer(where, expr, len(stack.query(expr)))
    except StackError as error:
        return Answer(where, expr, 0, str(error))

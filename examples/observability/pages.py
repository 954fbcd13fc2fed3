"""Which pages to open, and whether every query of the dashboards has an answer."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from examples.observability.stack import Stack, StackError
from vllm_hitratio_plugin.dashboards.alerts import alerts, inlined
from vllm_hitratio_plugin.dashboards.fleet import fleet
from vllm_hitratio_plugin.dashboards.overview import overview
from vllm_hitratio_plugin.dashboards.recording import recordings

GRAPHS = (
    "engine:hitratio_observed:ratio_rate5m or engine:hitratio_predicted:ratio_rate5m",
    "engine:hitratio_gap:ratio_rate5m",
    "sum by (fate) (rate(hitratio_blocks_total[1m]))",
    'ALERTS{alertname=~"HitRatio.+"}',
)
"""What a person without Grafana looks at."""


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
    """What came of one query."""

    where: str
    expr: str
    series: int
    error: str | None = None


def ask_everything(stack: Stack, window: str) -> Iterator[Answer]:
    """Ask every query of every panel, every recorded series, and every alert's condition (which may have no answer)."""
    values = {"__rate_interval": "30s", "__range": "10m", "window": window}
    values |= dict.fromkeys(("job", "model_name", "instance", "engine"), ".+")
    for page in (overview(), fleet()):
        for panel in page.panels():
            for number, query in enumerate(panel.queries):
                expr = re.sub(r"\$(\w+)", lambda match: values[match[1]], query.expr)
                yield _ask(stack, f"{page.title}: {panel.title} [{chr(65 + number)}]", expr)
    for rule in recordings():
        yield _ask(stack, f"recorded: {rule.name}", rule.name)


def ask_alerts(stack: Stack) -> Iterator[Answer]:
    """The alerts' conditions on the exported metrics alone; no answer is an answer."""
    for alert in alerts():
        yield _ask(stack, f"alert: {alert.name}", inlined(alert.expr))


def _ask(stack: Stack, where: str, expr: str) -> Answer:
    try:
        return Answer(where, expr, len(stack.query(expr)))
    except StackError as error:
        return Answer(where, expr, 0, str(error))

"""All queries of a page, as Grafana would send them."""

import re
from collections.abc import Iterator, Mapping

from vllm_hitratio_plugin.dashboards.dashboard import Dashboard
from vllm_hitratio_plugin.dashboards.fleet import fleet
from vllm_hitratio_plugin.dashboards.overview import overview

PAGES = (overview(), fleet())

#: What Grafana puts in for a page that nothing was chosen on.
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


def filled(expr: str, values: Mapping[str, str] = VALUES) -> str:
    """The query with its variables replaced; raises KeyError on one that is not known."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], expr)


def queries(page: Dashboard) -> Iterator[tuple[str, str]]:
    """(where, PromQL) of panels and annotations."""
    for panel in page.panels():
        for index, query in enumerate(panel.queries):
            yield f"{page.uid}: {panel.title} [{chr(65 + index)}]", filled(query.expr)
    for name, _, expr, _ in page.annotations:
        yield f"{page.uid}: annotation {name}", filled(expr)

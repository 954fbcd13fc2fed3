"""A dashboard from rows of panels: its identity, and what all panels have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import Dataquery

from tools.dashboards.descriptions import descriptions
from tools.dashboards.events import add_texts, events
from tools.dashboards.metrics import metrics_in
from tools.dashboards.variables import DATA_SOURCE, variables

Json = dict[str, Any]

#: What Grafana 10.4 and newer load.
SCHEMA_VERSION = 39


@dataclass(frozen=True)
class Row:
    """Panels with a title above them; without a title they follow the row before. All have the same height."""

    title: str
    height: int
    widths: Sequence[int]
    panels: Sequence[Builder[models.Panel]]
    collapsed: bool = False


def page(uid: str, title: str, description: str, *rows: Row) -> Json:
    """The classic JSON of a dashboard; the panels' descriptions come from docs/dashboards.md."""
    builder = (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["vllm", "hitratio"])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("")
        .version(1)
        .link(_vllm_dashboards())
        .variables([*variables()])
        .annotations([*events()])
    )
    for row in rows:
        for panel, width in zip(row.panels, row.widths, strict=True):
            panel.build().grid_pos = models.GridPos(h=row.height, w=width)
        header = builders.Row(row.title)
        if row.collapsed:
            for panel in row.panels:
                header.with_panel(panel)
        if row.title:
            builder.with_row(header)
        if not row.collapsed:
            for panel in row.panels:
                builder.with_panel(panel)
    dashboard = builder.build()
    dashboard.schema_version = SCHEMA_VERSION
    _complete(dashboard.panels or (), descriptions(title))
    built = {"id": None, **json.loads(JSONEncoder().encode(dashboard))}
    add_texts(built)
    return built


def panel_id(dashboard: Json, title: str) -> int:
    """Number of the panel with a title; raises LookupError."""
    for panel in dashboard["panels"]:
        for each in (panel, *panel.get("panels", ())):
            if each["title"] == title:
                return int(each["id"])
    raise LookupError(f"no panel {title!r} on {dashboard['uid']}")


def _complete(panels: Sequence[models.Panel | models.RowPanel], texts: dict[str, str]) -> None:
    """Numbers, data source, letters of the queries, and descriptions that end with the metrics."""
    every = [each for panel in panels for each in (panel, *getattr(panel, "panels", ()))]
    for number, panel in enumerate(every, start=1):
        panel.id_val = number
        if isinstance(panel, models.RowPanel):
            continue
        panel.datasource = DATA_SOURCE
        metrics: dict[str, None] = {}
        for index, target in enumerate(panel.targets or ()):
            assert isinstance(target, Dataquery)
            target.ref_id, target.datasource = chr(ord("A") + index), DATA_SOURCE
            metrics.update(dict.fromkeys(metrics_in(target.expr)))
        panel.description = f"{texts[panel.title or '']}\n\nMetrics: {', '.join(f'`{name}`' for name in metrics)}"


def _vllm_dashboards() -> builders.DashboardLink:
    # The tag vllm also puts this dashboard into the list on vLLM's own.
    link = builders.DashboardLink("vLLM dashboards").type(models.DashboardLinkType.DASHBOARDS).tags(["vllm"])
    return link.icon("external link").as_dropdown(True).include_vars(True).keep_time(True)

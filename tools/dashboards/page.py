"""A dashboard from rows of panels: its identity, variables, link and annotations, and what all panels have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import Dataquery

from tools.dashboards.descriptions import descriptions
from tools.dashboards.metrics import metrics_in
from tools.dashboards.promql import Source

Json = dict[str, Any]

#: What Grafana 10.4 and newer load.
SCHEMA_VERSION = 39

DATA_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

#: The matchers of vLLM's own dashboards.
MATCHERS = 'job=~"$job", model_name=~"$model_name", instance=~"$instance", engine=~"$engine"'

#: The queries of all panels, over the window that the reader chooses: ratios need some hundred requests.
CHOSEN = Source("$window", MATCHERS)

#: Over the shortest window that has enough scrapes.
RECENT = Source("$__rate_interval", MATCHERS)

#: Over the whole time range.
WHOLE = Source("$__range", MATCHERS)

_WINDOWS = ("1m", "2m", "5m", "10m", "30m", "1h", "6h", "1d")
_AUTO = "$__auto_interval_window"


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
        .variables([*_variables()])
        .annotations([_built_in(), *(_annotation(*event) for event in _EVENTS)])
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
    return _with_texts({"id": None, **json.loads(JSONEncoder().encode(dashboard))})


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


def _variables() -> Iterator[Builder[models.VariableModel]]:
    yield _refreshed(
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        models.VariableRefresh.ON_DASHBOARD_LOAD,
    )
    matchers: list[str] = []
    for name, label in (("job", "Job"), ("model_name", "Model"), ("instance", "Instance"), ("engine", "Engine")):
        selector = f"{{{', '.join(matchers)}}}" if matchers else ""
        yield (
            builders.QueryVariable(name)
            .label(label)
            .query({"query": f"label_values(hitratio_build_info{selector}, {name})", "refId": f"variable-{name}"})
            .datasource(DATA_SOURCE)
            .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
            .multi(True)
            .include_all(True)
            .all_value(".+")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
        )
        matchers.append(f'{name}=~"${name}"')
    options = [
        models.VariableOption(selected=span == "auto", text=span, value=_AUTO if span == "auto" else span)
        for span in ("auto", *_WINDOWS)
    ]
    window = builders.IntervalVariable("window").label("Window").values(",".join(_WINDOWS)).current(options[0])
    window.description(
        "The time span that ratios are taken over. Short windows are noisy; auto is at least 10 minutes, like the"
        " engines' own window."
    )
    window.auto(True).min_interval("10m").step_count(12).options(options)
    yield _refreshed(window, models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    yield builders.AdHocVariable("filters").label("Filters").datasource(DATA_SOURCE)


def _refreshed(
    variable: Builder[models.VariableModel], refresh: models.VariableRefresh
) -> Builder[models.VariableModel]:
    """When Grafana computes its values; the SDK's builders of these two kinds cannot say it."""
    variable.build().refresh = refresh
    return variable


#: Events on all panels: name, colour, query, text.
_EVENTS = (
    (
        "Alert firing",
        "red",
        'max by (alertname, model_name, engine) (ALERTS{alertname=~"HitRatio.+", alertstate="firing", job=~"$job"})',
        "{{alertname}} {{model_name}} engine {{engine}}",
    ),
    (
        "Prefix cache reset",
        "purple",
        f"max by (instance, engine) (increase({CHOSEN('hitratio_cache_resets_total')}[1m])) > 0",
        "{{instance}} engine {{engine}}",
    ),
)


def _annotation(name: str, color: str, expr: str, text: str) -> builders.AnnotationQuery:
    metrics_in(expr)
    annotation = builders.AnnotationQuery().name(name).datasource(DATA_SOURCE).icon_color(color).expr(expr)
    return annotation.enable(True).hide(False)


def _built_in() -> builders.AnnotationQuery:
    grafana = models.DataSourceRef(type_val="grafana", uid="-- Grafana --")
    annotation = builders.AnnotationQuery().name("Annotations & Alerts").type("dashboard").built_in(1)
    return annotation.datasource(grafana).icon_color("rgba(0, 211, 255, 1)").enable(True).hide(True)


def _with_texts(dashboard: Json) -> Json:
    """What the SDK's annotations lack: the texts of Prometheus events."""
    for annotation, (name, _, _, text) in zip(dashboard["annotations"]["list"][1:], _EVENTS, strict=True):
        annotation.update({"step": "30s", "titleFormat": name, "textFormat": text, "useValueForTime": False})
    return dashboard

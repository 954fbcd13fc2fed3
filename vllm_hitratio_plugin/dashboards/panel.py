"""Panels as values: what each shows, and its classic dashboard JSON (Grafana 10.4 and newer)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_hitratio_plugin.dashboards.promql import metrics_in

Json = dict[str, Any]

DATA_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

#: One colour a quantity, on every page.
OBSERVED = "blue"
PREDICTED = "orange"
CEILING = "green"
NEUTRAL = "text"
QUIET = "#8e8e99"

#: What a panel says instead of a number where nothing was measured.
NO_TRAFFIC = "No traffic"


@dataclass(frozen=True)
class Query:
    """One PromQL query of a panel.

    Args:
        expr: PromQL.
        legend: Name of its series; ``{{label}}`` is filled in.
        instant: The value now, instead of the values over the time range.
        table: Rows instead of series.
        heatmap: Buckets, one series a bucket.
        exemplar_of_range: Instant over the whole time range (``$__range``), for sums over it.
    """

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False
    heatmap: bool = False

    def json(self, ref: str) -> Json:
        """The target of a panel."""
        target: Json = {
            "datasource": DATA_SOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legend or "__auto",
            "range": not self.instant,
            "refId": ref,
        }
        if self.instant:
            target["instant"] = True
        if self.table:
            target["format"] = "table"
        if self.heatmap:
            target["format"] = "heatmap"
        return target


@dataclass(frozen=True)
class Style:
    """How the series of one name look: field properties by their path, ``custom.`` included."""

    name: str
    properties: Json
    regex: bool = False

    def json(self) -> Json:
        """The override of a panel's field configuration."""
        return {
            "matcher": {"id": "byRegexp" if self.regex else "byName", "options": self.name},
            "properties": [{"id": path, "value": value} for path, value in self.properties.items()],
        }


@dataclass(frozen=True)
class Panel:
    """One panel.

    Args:
        kind: Grafana's panel type.
        title: What it shows, in a few words.
        description: What it means, and after "Good:" what good looks like. The metrics are added by themselves.
        queries: In the order of their refIds A, B, ...
        defaults: ``fieldConfig.defaults``.
        styles: Overrides by name of the series or field.
        options: The panel type's options.
        transformations: In order.
        interval: Least step of its queries.
    """

    kind: str
    title: str
    description: str
    queries: Sequence[Query] = ()
    defaults: Json = field(default_factory=dict)
    styles: Sequence[Style] = ()
    options: Json = field(default_factory=dict)
    transformations: Sequence[Json] = ()
    interval: str = ""

    @property
    def metrics(self) -> list[str]:
        """Metrics it reads."""
        return list(dict.fromkeys(name for query in self.queries for name in metrics_in(query.expr)))

    def json(self, number: int, x: int, y: int, width: int, height: int) -> Json:
        """The panel at its place."""
        names = ", ".join(f"`{name}`" for name in self.metrics)
        panel: Json = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description + (f"\n\nMetrics: {names}" if names else ""),
            "datasource": DATA_SOURCE,
            "gridPos": {"h": height, "w": width, "x": x, "y": y},
            "targets": [query.json(chr(ord("A") + index)) for index, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self.defaults, "overrides": [style.json() for style in self.styles]},
            "options": self.options,
        }
        if self.transformations:
            panel["transformations"] = list(self.transformations)
        if self.interval:
            panel["interval"] = self.interval
        return panel


def fixed(color: str) -> Json:
    """A colour that does not depend on the value."""
    return {"mode": "fixed", "fixedColor": color}


def thresholds(*steps: tuple[float | None, str]) -> Json:
    """Colours from a value on; the first step has no lower end."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for value, color in steps]}


def stat(
    title: str,
    description: str,
    queries: Query | Sequence[Query],
    unit: str,
    *,
    color: str | None = None,
    steps: Sequence[tuple[float | None, str]] = (),
    spark: bool = False,
    none: str = NO_TRAFFIC,
    decimals: int | None = None,
    mappings: Sequence[Json] = (),
    named: bool = False,
    styles: Sequence[Style] = (),
) -> Panel:
    """One figure, coloured by thresholds where there is a judgement, else in one colour; `spark`: its course behind."""
    nan: Json = {"type": "special", "options": {"match": "nan", "result": {"text": none, "index": 0}}}
    defaults: Json = {
        "unit": unit,
        "noValue": none,
        "mappings": [nan, *mappings],
        "color": {"mode": "thresholds"} if steps else fixed(color or NEUTRAL),
        "thresholds": thresholds(*(steps or ((None, color or NEUTRAL),))),
    }
    if decimals is not None:
        defaults["decimals"] = decimals
    return Panel(
        kind="stat",
        title=title,
        description=description,
        queries=[queries] if isinstance(queries, Query) else queries,
        defaults=defaults,
        styles=styles,
        options={
            "colorMode": "value",
            "graphMode": "area" if spark else "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "percentChangeColorMode": "standard",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showPercentChange": False,
            "text": {"valueSize": 30},
            "textMode": "value_and_name" if named else "value",
            "wideLayout": True,
        },
    )


def timeseries(
    title: str,
    description: str,
    queries: Sequence[Query],
    unit: str,
    *,
    styles: Sequence[Style] = (),
    least: float | None = None,
    most: float | None = None,
    steps: Sequence[tuple[float | None, str]] = (),
    fill: int = 0,
    stacked: bool = False,
    color: Json | None = None,
    legend: str = "list",
    soft: float | None = None,
    log: bool = False,
    decimals: int | None = None,
    interval: str = "",
) -> Panel:
    """Curves over time.

    `steps` are drawn as dashed threshold lines; the axis spans at least ± `soft`; `log` is a logarithmic axis.
    """
    custom: Json = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1 if stacked else 2,
        "fillOpacity": fill,
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": False,
        "axisPlacement": "auto",
        "axisLabel": "",
        "axisBorderShow": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if steps else "off"},
    }
    if soft is not None:
        custom.update({"axisSoftMin": -soft, "axisSoftMax": soft})
    if log:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    defaults: Json = {
        "unit": unit,
        "noValue": NO_TRAFFIC,
        "custom": custom,
        "color": color or {"mode": "palette-classic"},
        "thresholds": thresholds(*(steps or ((None, NEUTRAL),))),
    }
    if least is not None:
        defaults["min"] = least
    if most is not None:
        defaults["max"] = most
    if decimals is not None:
        defaults["decimals"] = decimals
    return Panel(
        kind="timeseries",
        title=title,
        description=description,
        queries=queries,
        defaults=defaults,
        styles=styles,
        options={
            "legend": {
                "calcs": [],
                "displayMode": "list",
                "placement": "bottom",
                "showLegend": legend != "none",
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        interval=interval,
    )


def line(name: str, color: str, *, dashed: bool = False, width: int = 2, regex: bool = False, **more: Any) -> Style:
    """A curve in its own colour."""
    properties: Json = {"color": fixed(color), "custom.lineWidth": width}
    if dashed:
        properties["custom.lineStyle"] = {"fill": "dash", "dash": [8, 6]}
    properties.update({f"custom.{key}": value for key, value in more.items()})
    return Style(name, properties, regex)


def band(upper: str, lower: str, color: str, opacity: int = 14) -> list[Style]:
    """Two curves without lines, the area between them filled; not in legend, shown in the tooltip."""
    hidden = {"legend": True, "tooltip": False, "viz": False}
    common: Json = {"color": fixed(color), "custom.lineWidth": 0, "custom.hideFrom": hidden}
    return [
        Style(upper, {**common, "custom.fillBelowTo": lower, "custom.fillOpacity": opacity}),
        Style(lower, {**common, "custom.fillOpacity": 0}),
    ]


def to_number(name: str) -> Json:
    """Make a label's text a number, so that it can be an axis."""
    return {
        "id": "convertFieldType",
        "options": {"conversions": [{"destinationType": "number", "targetField": name}], "fields": {}},
    }


def organize(names: dict[str, str], hidden: tuple[str, ...] = ()) -> Json:
    """Rename and order fields; the time goes."""
    return {
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(("Time", *hidden), True),
            "includeByName": {},
            "indexByName": {name: index for index, name in enumerate(names)},
            "renameByName": {name: shown for name, shown in names.items() if name != shown},
        },
    }

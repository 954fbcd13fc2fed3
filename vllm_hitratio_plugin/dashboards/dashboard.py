"""A page of panels: rows laid out from left to right, the variables every query uses, and the identity of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_hitratio_plugin.dashboards.panel import DATA_SOURCE, Json, Panel

#: Loads in Grafana 10.4 and newer.
SCHEMA_VERSION = 39

#: The matchers of vLLM's own dashboards.
MATCHERS = 'job=~"$job", model_name=~"$model_name", instance=~"$instance", engine=~"$engine"'

#: The window of all ratios: chosen on the page, a fixed span of time whatever the zoom.
WINDOW = "$window"

WIDTH = 24


@dataclass(frozen=True)
class Placed:
    """A panel with its size in grid cells, of 24 across."""

    panel: Panel
    width: int
    height: int


@dataclass(frozen=True)
class Row:
    """Panels under a title; without one they start the page."""

    title: str
    panels: Sequence[Placed]
    collapsed: bool = False


@dataclass(frozen=True)
class Dashboard:
    """One page.

    Args:
        uid: Stable, part of its address.
        title: As listed in Grafana.
        description: One sentence.
        rows: From cause to detail.
        annotations: Events drawn on all panels: (name, colour, PromQL, text).
    """

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    annotations: Sequence[tuple[str, str, str, str]] = ()

    def json(self) -> Json:
        """Classic dashboard JSON."""
        return {
            "annotations": {"list": [_BUILT_IN, *(_annotation(*event) for event in self.annotations)]},
            "description": self.description,
            "editable": False,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "id": None,
            "links": [_LINK],
            "panels": _layout(self.rows),
            "refresh": "30s",
            "schemaVersion": SCHEMA_VERSION,
            "tags": ["vllm", "hitratio"],
            "templating": {"list": _variables()},
            "time": {"from": "now-1h", "to": "now"},
            "timepicker": {},
            "timezone": "",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
            "weekStart": "",
        }

    def panel_id(self, title: str) -> int:
        """Number of the panel with a title; raises LookupError."""
        for panel in _layout(self.rows):
            for each in (panel, *panel.get("panels", ())):
                if each["title"] == title:
                    return int(each["id"])
        raise LookupError(f"no panel {title!r} on {self.uid}")

    def panels(self) -> list[Panel]:
        """All panels, in the order of the page."""
        return [placed.panel for row in self.rows for placed in row.panels]


_BUILT_IN: Json = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}

# The tag vllm also puts this page into the list of vLLM's own dashboards.
_LINK: Json = {
    "asDropdown": True,
    "icon": "external link",
    "includeVars": True,
    "keepTime": True,
    "tags": ["vllm"],
    "targetBlank": False,
    "title": "vLLM dashboards",
    "tooltip": "",
    "type": "dashboards",
    "url": "",
}


def _annotation(name: str, color: str, expr: str, text: str) -> Json:
    return {
        "datasource": DATA_SOURCE,
        "enable": True,
        "expr": expr,
        "hide": False,
        "iconColor": color,
        "name": name,
        "step": "30s",
        "textFormat": text,
        "titleFormat": name,
        "useValueForTime": False,
    }


def _layout(rows: Sequence[Row]) -> list[Json]:
    panels: list[Json] = []
    number, y = 1, 0
    for row in rows:
        header: Json | None = None
        if row.title:
            header = {
                "collapsed": row.collapsed,
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
                "id": number,
                "panels": [],
                "title": row.title,
                "type": "row",
            }
            panels.append(header)
            number, y = number + 1, y + 1
        x = tallest = 0
        for placed in row.panels:
            if x + placed.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            json = placed.panel.json(number, x, y, placed.width, placed.height)
            (header["panels"] if header is not None and row.collapsed else panels).append(json)
            x, tallest, number = x + placed.width, max(tallest, placed.height), number + 1
        # The cells of a collapsed row take no room until it is opened.
        y += 0 if row.collapsed else tallest
    return panels


def _variables() -> list[Json]:
    anchor = "hitratio_build_info"
    return [
        {
            "current": {},
            "hide": 0,
            "includeAll": False,
            "label": "Data source",
            "multi": False,
            "name": "datasource",
            "options": [],
            "query": "prometheus",
            "refresh": 1,
            "regex": "",
            "skipUrlSync": False,
            "type": "datasource",
        },
        _values("job", "Job", f"label_values({anchor}, job)"),
        _values("model_name", "Model", f'label_values({anchor}{{job=~"$job"}}, model_name)'),
        _values(
            "instance",
            "Instance",
            f'label_values({anchor}{{job=~"$job", model_name=~"$model_name"}}, instance)',
        ),
        _values(
            "engine",
            "Engine",
            f'label_values({anchor}{{job=~"$job", model_name=~"$model_name", instance=~"$instance"}}, engine)',
        ),
        {
            "auto": True,
            "auto_count": 12,
            "auto_min": "10m",
            "current": {"selected": True, "text": "auto", "value": "$__auto_interval_window"},
            "description": (
                "Over which time ratios are taken. Short windows are noise; auto is 10 minutes or longer, like the"
                " engines' own window."
            ),
            "hide": 0,
            "label": "Window",
            "name": "window",
            "options": [
                {
                    "selected": span == "auto",
                    "text": span,
                    "value": "$__auto_interval_window" if span == "auto" else span,
                }
                for span in ("auto", *_WINDOWS)
            ],
            "query": ",".join(_WINDOWS),
            "refresh": 2,
            "skipUrlSync": False,
            "type": "interval",
        },
        {
            "baseFilters": [],
            "datasource": DATA_SOURCE,
            "filters": [],
            "hide": 0,
            "label": "Filters",
            "name": "filters",
            "skipUrlSync": False,
            "type": "adhoc",
        },
    ]


_WINDOWS = ("1m", "2m", "5m", "10m", "30m", "1h", "6h", "1d")


def _values(name: str, label: str, query: str) -> Json:
    return {
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": DATA_SOURCE,
        "definition": query,
        "hide": 0,
        "includeAll": True,
        "label": label,
        "multi": True,
        "name": name,
        "options": [],
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
        "type": "query",
    }

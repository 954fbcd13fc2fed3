"""Panels in the house style, as builders of grafana-foundation-sdk; callers add what is special about one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import barchart, bargauge, common, prometheus, stat, statetimeline, table
from grafana_foundation_sdk.builders import timeseries as timeseries_panel
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

from tools.dashboards.style import NEUTRAL, Override, by_value, colored, fixed, line, override, palette, steps

#: What a panel says instead of a number where nothing was measured.
NO_TRAFFIC = "No traffic"

T = TypeVar("T")
Query = prometheus.Dataquery
Series = tuple[Query, list[Override]]
Column = tuple[str, Override]


def query(expr: str, legend: str = "__auto") -> Query:
    """Values over the time range."""
    return Query().expr(expr).legend_format(legend).editor_mode(QueryEditorMode.CODE).range()


def rows(expr: str) -> Query:
    """The values at the end of the time range, as rows with the labels as columns."""
    return query(expr).instant().format(PromQueryFormat.TABLE)


def legend(show: bool = True) -> common.VizLegendOptions:
    """Below the panel."""
    shown = common.VizLegendOptions().show_legend(show).placement(options.LegendPlacement.BOTTOM)
    return shown.display_mode(options.LegendDisplayMode.LIST).calcs([])


def tooltip(sort: options.SortOrder = options.SortOrder.DESCENDING) -> common.VizTooltipOptions:
    """All series at a time."""
    return common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(sort)


def last_value() -> common.ReduceDataOptions:
    """The newest value of each series."""
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def figure(title: str, unit: str, expr: str, color: str = NEUTRAL, none: str = NO_TRAFFIC) -> stat.Panel:
    """One number."""
    empty = [
        models.DashboardSpecialValueMapOptions(match, models.ValueMappingResult(text=none, index=index))
        for index, match in enumerate((models.SpecialValueMatch.NA_N, models.SpecialValueMatch.NULL))
    ]
    panel = stat.Panel().title(title).unit(unit).with_target(query(expr)).no_value(none)
    panel.mappings([models.SpecialValueMap(each) for each in empty])
    panel.color_scheme(fixed(color)).thresholds(steps((None, color))).graph_mode(options.BigValueGraphMode.NONE)
    panel.color_mode(options.BigValueColorMode.VALUE).text_mode(options.BigValueTextMode.VALUE)
    return panel.text(common.VizTextDisplayOptions().value_size(30)).reduce_options(last_value())


def judged(panel: stat.Panel, *colors: tuple[float | None, str]) -> stat.Panel:
    """A number coloured by thresholds."""
    return panel.color_scheme(by_value()).thresholds(steps(*colors))


def curve(expr: str, name: str, color: str = "", *, width: int = 2, dashed: bool = False) -> Series:
    """A series over time; without a colour, one of Grafana's palette."""
    return query(expr, name), [line(name, color, width=width, dashed=dashed)] if color else []


def per_engine(expr: str) -> Series:
    """One series per engine."""
    return curve(expr, "{{instance}} · {{engine}}")


def band(upper: str, lower: str, color: str) -> tuple[Series, Series]:
    """The area between two curves, shown in the tooltip but not in the legend."""
    hidden = {"legend": True, "tooltip": False, "viz": False}
    common_look = {"custom.lineWidth": 0, "custom.hideFrom": hidden}
    filled = {**common_look, "custom.fillBelowTo": "band, lower", "custom.fillOpacity": 14}
    return (
        (query(upper, "band, upper"), [colored("band, upper", color, filled)]),
        (query(lower, "band, lower"), [colored("band, lower", color, {**common_look, "custom.fillOpacity": 0})]),
    )


def timeseries(title: str, unit: str, *series: Series, least: float | None = 0) -> timeseries_panel.Panel:
    """Curves over time; the axis begins at `least`."""
    panel = timeseries_panel.Panel().title(title).unit(unit).targets([each for each, _ in series])
    panel.overrides([each for _, looks in series for each in looks]).no_value(NO_TRAFFIC)
    panel.line_width(2).fill_opacity(0).show_points(options.VisibilityMode.NEVER).span_nulls(False)
    if least is not None:
        panel.min(least)
    panel.color_scheme(palette())
    return panel.legend(legend()).tooltip(tooltip())


def differences(title: str, *series: Series, soft: float) -> timeseries_panel.Panel:
    """Differences of hit ratios over time; the axis spans at least ± `soft`."""
    panel = timeseries(title, "percentunit", *series, least=None).decimals(1)
    return panel.axis_soft_min(-soft).axis_soft_max(soft)


def with_limits(panel: timeseries_panel.Panel, *limits: tuple[float | None, str]) -> timeseries_panel.Panel:
    """Dashed lines at the thresholds."""
    dashed = common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED)
    return panel.thresholds(steps(*limits)).thresholds_style(dashed)


def stacked(panel: timeseries_panel.Panel, fill: int) -> timeseries_panel.Panel:
    """Curves on top of each other, the areas filled."""
    stacking = common.StackingConfig().mode(options.StackingMode.NORMAL).group("A")
    return panel.line_width(1).fill_opacity(fill).stacking(stacking)


def column(
    name: str,
    unit: str = "",
    width: int = 0,
    *,
    color: str = "",
    judge: Sequence[tuple[float | None, str]] = (),
    more: dict[str, Any] | None = None,
) -> Column:
    """A column of a table; `color` or thresholds (`judge`) colour its text, `more` are further properties."""
    look: dict[str, Any] = {"custom.width": width} if width else {"custom.minWidth": 60}
    if unit:
        look["unit"] = unit
    if unit == "percentunit":
        look["decimals"] = 1
    if color or judge:
        look["custom.cellOptions"] = {"type": "color-text"}
        look.update({"color": fixed(color).build()} if color else {"thresholds": steps(*judge).build()})
    return name, override(name, {**look, **(more or {})})


def grid(
    title: str,
    queries: Sequence[str],
    columns: dict[str, Column],
    *before: models.DataTransformerConfig,
    hidden: Sequence[str] = (),
    sort: str = "",
    descending: bool = False,
) -> table.Panel:
    """A table: `columns` by the field that they show, in this order, after the transformations `before`.

    Rows are in the order of the column `sort`.
    """
    panel = table.Panel().title(title).targets([rows(expr) for expr in queries]).no_value(NO_TRAFFIC)
    panel.color_scheme(by_value()).thresholds(steps((None, NEUTRAL))).cell_height(
        options.TableCellHeight.SM
    ).show_header(True)
    panel.overrides([look for _, look in columns.values()])
    merge = [transformation("merge")] if len(queries) > 1 else []
    names = {field: name for field, (name, _) in columns.items()}
    if sort:
        panel.sort_by([common.TableSortByFieldState().display_name(names[sort]).desc(descending)])
        before = (*before, sort_by(sort, descending=descending))
    return panel.transformations([*merge, *before, organize(names, hidden)])


def bars(title: str, unit: str, queries: dict[str, str], looks: list[Override]) -> barchart.Panel:
    """One group of bars per engine, one bar per query; `queries` by name of the bar, the engine in the label `name`."""
    panel = barchart.Panel().title(title).unit(unit).targets([rows(expr) for expr in queries.values()]).min(0)
    panel.no_value(NO_TRAFFIC).fill_opacity(75).line_width(0).bar_width(0.8).group_width(0.7)
    panel.show_value(options.VisibilityMode.NEVER).stacking(options.StackingMode.NONE).x_field("Engine")
    panel.legend(legend()).tooltip(tooltip(options.SortOrder.NONE)).overrides(looks)
    names = {"name": "Engine", **lettered(queries)}
    return panel.transformations([transformation("merge"), organize(names, ["model_name", "instance", "engine"])])


def shares(title: str, queries: dict[str, str], looks: list[Override]) -> bargauge.Panel:
    """One horizontal bar per query, from 0 to 100 %."""
    panel = bargauge.Panel().title(title).unit("percentunit").decimals(1).min(0).max(1).no_value(NO_TRAFFIC)
    panel.targets([query(expr, name).instant() for name, expr in queries.items()]).overrides(looks)
    panel.display_mode(options.BarGaugeDisplayMode.BASIC).orientation(options.VizOrientation.HORIZONTAL)
    return panel.reduce_options(last_value()).show_unfilled(True)


def states(title: str, shown: Query, off: str, on: str, color: str) -> statetimeline.Panel:
    """When something was on (1, in this colour) or off (0, green)."""
    values = {
        "0": models.ValueMappingResult(text=off, color="green", index=0),
        "1": models.ValueMappingResult(text=on, color=color, index=1),
    }
    panel = statetimeline.Panel().title(title).unit("short").with_target(shown).no_value("None")
    panel.color_scheme(by_value()).thresholds(steps((None, "green"), (1, color)))
    panel.mappings([models.ValueMap(options=values)])
    panel.fill_opacity(60).line_width(0).merge_values(True).row_height(0.8).show_value(options.VisibilityMode.NEVER)
    single = common.VizTooltipOptions().mode(options.TooltipDisplayMode.SINGLE).sort(options.SortOrder.NONE)
    return panel.legend(legend(False)).tooltip(single)


def lettered(values: Iterable[T]) -> dict[str, T]:
    """What the values of the queries A, B, ... are called after merging them, in order."""
    return {f"Value #{chr(ord('A') + index)}": value for index, value in enumerate(values)}


def transformation(name: str, **settings: Any) -> models.DataTransformerConfig:
    """A transformation of the queries' results."""
    return models.DataTransformerConfig(id_val=name, options=settings)


def sort_by(field: str, *, descending: bool = False) -> models.DataTransformerConfig:
    """Rows by a field."""
    return transformation("sortBy", fields={}, sort=[{"field": field, "desc": descending}])


def by_capacity() -> list[models.DataTransformerConfig]:
    """Rows by the label capacity_blocks, which becomes a number."""
    conversion = {"destinationType": "number", "targetField": "capacity_blocks"}
    number = transformation("convertFieldType", conversions=[conversion], fields={})
    return [number, sort_by("capacity_blocks")]


def organize(names: dict[str, str], hidden: Sequence[str] = ()) -> models.DataTransformerConfig:
    """The fields in this order under new names, without the time and the `hidden` ones."""
    return transformation(
        "organize",
        excludeByName=dict.fromkeys(("Time", *hidden), True),
        includeByName={},
        indexByName={name: index for index, name in enumerate(names)},
        renameByName={name: shown for name, shown in names.items() if name != shown},
    )

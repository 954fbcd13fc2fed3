"""The hit-ratio curve: predicted hit ratio by capacity, as a plot and as a table."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, trend
from grafana_foundation_sdk.models import common as options

from tools.dashboards.panels import (
    NO_TRAFFIC,
    by_capacity,
    column,
    grid,
    legend,
    lettered,
    organize,
    rows,
    tooltip,
    transformation,
)
from tools.dashboards.promql import CURVE_BLOCKS, INFINITE, SHADOW_CURVE_BLOCKS
from tools.dashboards.style import CEILING, MUTED, NEUTRAL, OBSERVED, PREDICTED, TARGET, colored, fixed, line, override
from tools.dashboards.variables import CHOSEN

#: Share of the ceiling above which the curve is flat.
SATURATED = 0.995

_CEILING = CHOSEN.ratio(CURVE_BLOCKS, INFINITE)
_RISING = f"({CHOSEN.curve()}) <= scalar({SATURATED} * ({_CEILING}))"


def curve() -> trend.Panel:
    """Where the engines are on their hit-ratio curve."""
    capacity, recommended = CHOSEN("hitratio_capacity_blocks"), CHOSEN("hitratio_recommended_capacity_blocks")
    queries = {
        "predicted": _RISING,
        "observed now": _point(capacity, CHOSEN.observed()),
        "recommended": _point(recommended, f"max({CHOSEN('hitratio_target_ratio')})"),
        "ceiling": f"({_RISING}) * 0 + scalar({_CEILING})",
        "ideal LRU": f"({CHOSEN.curve(SHADOW_CURVE_BLOCKS)}) and on (capacity_blocks) ({_RISING})",
    }
    points = {
        "custom.drawStyle": "points",
        "custom.showPoints": "always",
        "custom.lineWidth": 0,
        "custom.pointSize": 14,
    }
    panel = trend.Panel().title("Hit ratio by capacity").unit("percentunit").no_value(NO_TRAFFIC)
    panel.targets([rows(expr) for expr in queries.values()]).color_scheme(fixed(PREDICTED))
    panel.line_width(2).fill_opacity(0).show_points(options.VisibilityMode.NEVER).span_nulls(True)
    panel.legend(legend()).tooltip(tooltip(options.SortOrder.NONE)).x_field("Capacity")
    panel.overrides(
        [
            # A minimum for all fields would move the horizontal axis, too.
            override("|".join(queries), {"min": 0}, regex=True),
            override("Capacity", {"unit": "locale", "custom.axisLabel": "capacity per engine, blocks"}),
            colored("predicted", PREDICTED, {"custom.fillOpacity": 10}),
            colored("observed now", OBSERVED, points),
            colored("recommended", TARGET, points),
            line("ceiling", CEILING, width=1, dashed=True),
            line("ideal LRU", MUTED, width=1),
        ]
    )
    names = {"capacity_blocks": "Capacity", **lettered(queries)}
    return panel.transformations([transformation("merge"), *by_capacity(), organize(names)])


def curve_in_numbers() -> table.Panel:
    """Some capacities, their sizes and what they would change."""
    predicted = CHOSEN.predicted()
    shown = f"(({CHOSEN.curve()}) >= scalar(0.3 * {predicted})) <= scalar({SATURATED} * ({_CEILING}))"
    block_bytes = f"max({CHOSEN('hitratio_capacity_bytes')} / {CHOSEN('hitratio_capacity_blocks')})"
    size = {"left": "capacity_blocks", "operator": "*", "right": "Value #A"}
    gauge = {
        "min": 0,
        "max": 1,
        "color": fixed(PREDICTED).build(),
        "custom.cellOptions": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
    }
    return grid(
        "The same in numbers",
        [f"({shown}) * 0 + scalar({block_bytes})", shown, f"({shown}) - scalar({predicted})"],
        {
            "capacity_blocks": column("Blocks", "locale", 80),
            "Size": column("Size", "bytes", 95),
            "Value #B": column("Hit ratio", "percentunit", more=gauge),
            "Value #C": column("Change", "percentunit", 85, judge=[(None, "red"), (-0.005, NEUTRAL), (0.005, "green")]),
        },
        *by_capacity(),
        transformation("calculateField", alias="Size", mode="binary", binary=size, reduce={"reducer": "sum"}),
        hidden=["Value #A"],
    )


def _point(capacity: str, ratio: str) -> str:
    """One point of the plot, at the largest of the engines' capacities; it becomes a label, as on the curve."""
    return f'count_values("capacity_blocks", round(max({capacity}))) * 0 + scalar({ratio})'

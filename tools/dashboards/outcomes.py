"""The outcome of each prompt block: hit, or the kind of miss."""

from __future__ import annotations

from grafana_foundation_sdk.builders import barchart, bargauge, table, timeseries
from grafana_foundation_sdk.models import common as options

from tools.dashboards.panels import bars, column, curve, grid, shares, stacked
from tools.dashboards.panels import timeseries as curves
from tools.dashboards.promql import OUTCOME_BLOCKS
from tools.dashboards.style import OUTCOME_COLORS, outcome_colors
from tools.dashboards.variables import CHOSEN, WHOLE


def over_time() -> timeseries.Panel:
    """Shares of the outcomes over time."""
    total = CHOSEN.flow(OUTCOME_BLOCKS)
    queries = {name: f"{CHOSEN.flow(OUTCOME_BLOCKS, _is(name))} / ({total} > 0)" for name in OUTCOME_COLORS}
    areas = [curve(expr, name, OUTCOME_COLORS[name], width=1) for name, expr in queries.items()]
    return stacked(curves("Outcomes of prompt blocks", "percentunit", *areas), fill=70).max(1)


def totals() -> bargauge.Panel:
    """Shares of the outcomes over the whole time range."""
    queries = {name: f"sum({_blocks(_is(name))}) / (sum({_blocks()}) > 0)" for name in OUTCOME_COLORS}
    return shares("Shares", queries, outcome_colors())


def reasons() -> table.Panel:
    """Shares by outcome and reason over the whole time range."""
    blocks = f'label_join(sum by (outcome, reason) ({_blocks()}), "why", ": ", "outcome", "reason")'
    return grid(
        "Why",
        [f"{blocks} / on () group_left () (sum({_blocks()}) > 0)"],
        {"why": column("Outcome and reason"), "Value": column("Share", "percentunit", 75)},
        hidden=["outcome", "reason"],
        sort="Value",
        descending=True,
    )


def by_engine(labels: str, named: str) -> barchart.Panel:
    """Shares of the outcomes now, one bar per engine; `named` gives a query the engine's name as one label."""
    total = f"({CHOSEN.flow(OUTCOME_BLOCKS, by=labels)} > 0)"
    flows = {name: CHOSEN.flow(OUTCOME_BLOCKS, _is(name), by=labels) for name in OUTCOME_COLORS}
    queries = {name: named.format(f"{flow} / {total}") for name, flow in flows.items()}
    panel = bars("Outcomes of prompt blocks, by engine", "percentunit", queries, outcome_colors())
    return panel.max(1).stacking(options.StackingMode.NORMAL)


def _is(outcome: str) -> str:
    """The matcher of an outcome; its reasons are summed."""
    return f'outcome="{outcome}"'


def _blocks(*matchers: str) -> str:
    """Blocks within the whole time range."""
    return f"increase({WHOLE(OUTCOME_BLOCKS, *matchers)}[{WHOLE.window}])"

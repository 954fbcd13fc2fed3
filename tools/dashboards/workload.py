"""The traffic that the prediction rests on, and what changed in it."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common, heatmap, statetimeline, timeseries
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import heatmap as heatmap_options
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.dashboards.metrics import FACTORS
from tools.dashboards.panels import curve, differences, per_engine, query, states
from tools.dashboards.panels import timeseries as curves
from tools.dashboards.promql import ENGINE, PROMPT_BLOCKS
from tools.dashboards.style import CEILING, NEUTRAL, line
from tools.dashboards.variables import CHOSEN

#: Two windows are needed before there is a drift.
_NO_DRIFT = "No second window yet"

_FACTOR_COLORS = dict(zip(FACTORS, ("dark-yellow", "purple", "blue", "green", "orange"), strict=True))


def engines(gauge: str) -> str:
    """A gauge that may not be averaged: one series per engine."""
    return f"max by (instance, engine) ({CHOSEN(gauge)})"


def drift() -> timeseries.Panel:
    """How much each factor of the traffic contributes to the change of the prediction."""
    gauge, traffic = CHOSEN("hitratio_drift_contribution_ratio"), CHOSEN.rate(PROMPT_BLOCKS)
    weighed = f"{gauge} * on ({ENGINE}) group_left () {traffic}"
    total = f"(sum({traffic} and on ({ENGINE}) {gauge}) > 0)"
    factors = query(f"sum by (factor) ({weighed}) / on () group_left () {total}", "{{factor}}")
    whole = curve(f"sum({weighed}) / {total}", "whole change", NEUTRAL, dashed=True)
    lines = [line(factor, color, width=1) for factor, color in _FACTOR_COLORS.items()]
    panel = differences("Drift: contributions to the change of the prediction", (factors, lines), whole, soft=0.02)
    return panel.no_value(_NO_DRIFT)


def significant_drift() -> statetimeline.Panel:
    """Which factors changed beyond their standard errors."""
    shown = query(f"max by (factor) ({CHOSEN('hitratio_drift_significant')})", "{{factor}}")
    return states("Drift beyond the standard error", shown, "steady", "changed", "orange").no_value(_NO_DRIFT)


def averages() -> list[timeseries.Panel]:
    """What one conversation is like, and how many there are."""
    history, reusable = (CHOSEN.weighted(f"hitratio_{name}_workload_blocks") for name in ("history", "reusable"))
    workloads = curve(history, "A_R", "purple"), curve(reusable, "A_H^hash", CEILING)
    return [
        curves("Conversation arrivals: λ0", "cps", per_engine(engines("hitratio_conversation_arrival_rate"))),
        curves("Requested: A_R, A_H^hash", "short", *workloads),
        curves("Written: E[B]", "short", per_engine(engines("hitratio_lifetime_blocks"))),
        curves("Turns: E[M]", "short", per_engine(engines("hitratio_turns_per_conversation"))),
    ]


def time_between_turns() -> timeseries.Panel:
    """Whether blocks stay for as long as users are away."""
    buckets = CHOSEN.flow("hitratio_interarrival_seconds_bucket", by="le")
    characteristic_time = CHOSEN("hitratio_characteristic_time_seconds")
    percentiles = (
        curve(f"histogram_quantile({share}, {buckets})", f"between turns, {name}", color, width=1)
        for share, name, color in (
            (0.5, "median", "super-light-purple"),
            (0.9, "90 %", "light-purple"),
            (0.99, "99 %", "dark-purple"),
        )
    )
    panel = curves(
        "Characteristic time T_C and time between turns",
        "dthms",
        curve(f"min({characteristic_time})", "T_C", CEILING, width=3),
        curve(f"max({characteristic_time})", "T_C, longest engine", CEILING, width=1, dashed=True),
        *percentiles,
        least=None,
    )
    return panel.scale_distribution(common.ScaleDistributionConfig().type(options.ScaleDistribution.LOG).log(10))


def distribution() -> heatmap.Panel:
    """How many turns followed after which time."""
    buckets = f"increase({CHOSEN('hitratio_interarrival_seconds_bucket')}[$__rate_interval])"
    shown = query(f"sum by (le) ({buckets})", "{{le}}").format(PromQueryFormat.HEATMAP)
    colors = heatmap.HeatmapColorOptions().mode(heatmap_options.HeatmapColorMode.SCHEME).scheme("Purples").steps(64)
    colors.scale(heatmap_options.HeatmapColorScale.EXPONENTIAL).exponent(0.5)
    panel = heatmap.Panel().title("Time between turns: F").with_target(shown).interval("1m").calculate(False)
    panel.cell_gap(1).cell_values(heatmap.CellValues().unit("short").decimals(0)).color(colors)
    panel.y_axis(heatmap.YAxisConfig().unit("s").axis_placement(options.AxisPlacement.LEFT))
    return panel.show_legend().show_y_histogram()

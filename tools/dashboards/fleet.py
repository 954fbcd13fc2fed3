"""The fleet: engines next to each other, sums over all of them, and how far they are apart."""

from __future__ import annotations

from grafana_foundation_sdk.builders import barchart, stat, table, timeseries

from tools.dashboards import outcomes
from tools.dashboards.overview import LIMITS
from tools.dashboards.page import Json, Row, page
from tools.dashboards.panels import (
    bars,
    column,
    curve,
    differences,
    figure,
    grid,
    judged,
    lettered,
    per_engine,
    query,
    stacked,
    with_limits,
)
from tools.dashboards.panels import timeseries as curves
from tools.dashboards.promql import ENGINE, PROMPT_TOKENS
from tools.dashboards.style import MUTED, NEUTRAL, OBSERVED, PREDICTED, TARGET, TIER, colored, line
from tools.dashboards.thresholds import DIVERGENCE, STALE_SECONDS
from tools.dashboards.variables import CHOSEN, RECENT

UID = "hitratio-fleet"

_LABELS = "model_name, instance, engine"
_OBSERVED, _PREDICTED, _DIVERGENCE = CHOSEN.observed(_LABELS), CHOSEN.predicted(_LABELS), CHOSEN.divergence(_LABELS)
_TRAFFIC = CHOSEN.flow(PROMPT_TOKENS, by=_LABELS)

#: The engine's name as one label, for the axis of a bar chart.
_NAMED = 'label_join({}, "name", " · ", "instance", "engine")'


def fleet() -> Json:
    """The dashboard `hitratio-fleet`."""
    return page(
        UID,
        "vLLM / Hit ratio / Fleet",
        "All engines: which one differs, and what the fleet as a whole serves from its caches.",
        Row("", 4, (3, 4, 4, 5, 4, 4), _figures()),
        Row("Engine by engine", 8, (24,), [_engines()]),
        Row("Which engine differs?", 9, (12, 12), _differences()),
        Row("Sums over engines", 9, (12, 12), _sums()),
        Row("Spread", 8, (8, 8, 8), _spread()),
        Row("Capacity", 9, (12, 12), [_capacity(), outcomes.by_engine(_LABELS, _NAMED)]),
    )


def _gauge(name: str) -> str:
    return f"max by ({_LABELS}) ({CHOSEN(name)})"


def _figures() -> list[stat.Panel]:
    engines = f"count(max by ({ENGINE}) ({CHOSEN('hitratio_build_info')}))"
    worst = figure("Worst divergence", "percentunit", f"min({_DIVERGENCE})").decimals(1)
    return [
        figure("Engines", "locale", engines, none="None").decimals(0),
        figure("Observed", "percentunit", CHOSEN.observed(), OBSERVED).decimals(1),
        figure("Predicted", "percentunit", CHOSEN.predicted(), PREDICTED).decimals(1),
        judged(worst, (None, "red"), (-DIVERGENCE, "green")),
        figure("KV cache", "bytes", f"sum({CHOSEN('hitratio_capacity_bytes')})", none="Unknown"),
        figure("Tok / s", "short", RECENT.flow(PROMPT_TOKENS)),
    ]


def _engines() -> table.Panel:
    good = [(None, "red"), (-DIVERGENCE, "green"), (DIVERGENCE, "orange")]
    fresh = [(None, NEUTRAL), (STALE_SECONDS, "red")]
    values = [
        (_OBSERVED, column("Observed", "percentunit", 80, color=OBSERVED)),
        (_PREDICTED, column("Predicted", "percentunit", 80, color=PREDICTED)),
        (_DIVERGENCE, column("Divergence", "percentunit", 115, judge=good)),
        (CHOSEN.external(_LABELS), column("2nd tier", "percentunit", 80, color=TIER)),
        (_TRAFFIC, column("Traffic", "count:tok/s", 96)),
        (_gauge("hitratio_capacity_bytes"), column("KV cache", "bytes", 80)),
        (_gauge("hitratio_recommended_capacity_bytes"), column("Needed", "bytes", 76)),
        (_gauge("hitratio_characteristic_time_seconds"), column("T_C", "dthms", 76)),
        (
            f"time() - {_gauge('hitratio_last_fit_timestamp_seconds')}",
            column("Fit age", "s", 72, judge=fresh, more={"decimals": 0}),
        ),
    ]
    labels = {
        "model_name": column("Model", more={"custom.minWidth": 95}),
        "instance": column("Instance", more={"custom.minWidth": 125}),
        "engine": column("Engine", width=58),
    }
    queries, columns = zip(*values, strict=True)
    panel = grid("Engines in numbers", queries, {**labels, **lettered(columns)}, sort="Value #C")
    return panel.no_value("–")


def _differences() -> list[timeseries.Panel]:
    divergence = differences("Divergence, by engine", per_engine(_DIVERGENCE), soft=1.4 * DIVERGENCE)
    return [
        curves("Observed, by engine", "percentunit", per_engine(_OBSERVED)),
        with_limits(divergence, *LIMITS),
    ]


def _sums() -> list[timeseries.Panel]:
    predicted = query(CHOSEN.predicted("model_name"), "{{model_name}}, predicted")
    dashed = line(".*, predicted", MUTED, width=1, dashed=True, regex=True)
    observed = curve(CHOSEN.observed("model_name"), "{{model_name}}")
    served = query(CHOSEN.served_with_tier("model_name"), "{{model_name}}, with second tier")
    tier = line(".*, with second tier", TIER, regex=True)
    return [
        curves("Hit ratio, by model", "percentunit", observed, (served, [tier]), (predicted, [dashed])),
        stacked(curves("Traffic, by engine", "count:tok/s", per_engine(_TRAFFIC)), fill=25),
    ]


def _spread() -> list[timeseries.Panel]:
    spread = f"max by (model_name) ({_OBSERVED}) - min by (model_name) ({_OBSERVED})"
    time, arrivals = _gauge("hitratio_characteristic_time_seconds"), _gauge("hitratio_conversation_arrival_rate")
    best = curves("Hit ratio: best minus worst engine", "percentunit", curve(spread, "{{model_name}}"))
    return [
        best.axis_soft_max(0.1),
        curves("Characteristic time T_C, by engine", "dthms", per_engine(time)),
        curves("Conversation arrivals λ0, by engine", "cps", per_engine(arrivals)),
    ]


def _capacity() -> barchart.Panel:
    queries = {
        "KV cache": _NAMED.format(_gauge("hitratio_capacity_bytes")),
        "recommended": _NAMED.format(_gauge("hitratio_recommended_capacity_bytes")),
    }
    looks = [colored("KV cache", MUTED), colored("recommended", TARGET)]
    return bars("KV cache and recommendation, by engine", "bytes", queries, looks)

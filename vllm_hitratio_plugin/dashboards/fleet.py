"""The fleet: engines side by side, sums of flows, and how far the engines are apart."""

from __future__ import annotations

from vllm_hitratio_plugin.dashboards.dashboard import MATCHERS, WINDOW, Dashboard, Placed, Row
from vllm_hitratio_plugin.dashboards.events import EVENTS
from vllm_hitratio_plugin.dashboards.fates import FATE_COLORS, matcher
from vllm_hitratio_plugin.dashboards.panel import (
    NEUTRAL,
    OBSERVED,
    PREDICTED,
    QUIET,
    Json,
    Panel,
    Query,
    Style,
    fixed,
    organize,
    stat,
    thresholds,
    timeseries,
)
from vllm_hitratio_plugin.dashboards.promql import (
    ENGINE,
    FATES,
    HIT_BLOCKS,
    PROMPT_BLOCKS,
    PROMPT_TOKENS,
    Source,
)
from vllm_hitratio_plugin.dashboards.thresholds import GAP, STALE_SECONDS

UID = "hitratio-fleet"

#: The panel that alerts point to.
TABLE_PANEL = "Engines in numbers"

_on = Source(MATCHERS)
_EACH = "{{instance}} · {{engine}}"
_BY_ENGINE = "model_name, instance, engine"


def fleet() -> Dashboard:
    """The page `hitratio-fleet`."""
    return Dashboard(
        uid=UID,
        title="vLLM / Hit ratio / Fleet",
        description="Engines side by side: which one differs, and what the fleet as a whole serves from its caches.",
        rows=[
            Row("", [Placed(panel, 4, 4) for panel in _figures()]),
            Row("Engines side by side", [Placed(_table(), 24, 8)]),
            Row("Which engine differs?", [Placed(panel, 12, 9) for panel in _courses()]),
            Row("Sums of flows", [Placed(panel, 12, 9) for panel in _sums()]),
            Row("Spread", [Placed(panel, 8, 8) for panel in _spread()]),
            Row("Capacity", [Placed(_capacity(), 12, 9), Placed(_fates(), 12, 9)]),
        ],
        annotations=EVENTS,
    )


def _engine_gap(window: str) -> str:
    return _on.gap(window, by=_BY_ENGINE)


def _figures() -> list[Panel]:
    reporting = f"count(max by ({ENGINE}) ({_on('hitratio_build_info')}))"
    return [
        stat(
            "Engines",
            "Engines that report.\n\nGood: as many as you run.",
            Query(reporting),
            "locale",
            decimals=0,
            none="None",
        ),
        stat(
            "Observed",
            "Share of all prompt blocks that the caches served: flows summed, then divided.\n\n"
            "Good: close to the prediction.",
            Query(_on.observed(WINDOW)),
            "percentunit",
            color=OBSERVED,
            decimals=1,
        ),
        stat(
            "Predicted",
            "Share that LRU caches of these capacities should serve on the same prompts, routed as they were.\n\n"
            "Good: close to what is observed.",
            Query(_on.predicted(WINDOW)),
            "percentunit",
            color=PREDICTED,
            decimals=1,
        ),
        stat(
            "Worst gap",
            "Observed minus predicted of the engine that falls short most.\n\n"
            f"Good: above -{GAP:.0%}. Below it, the table shows which engine.",
            Query(f"min({_engine_gap(WINDOW)})"),
            "percentunit",
            steps=((None, "red"), (-GAP, "green")),
            decimals=1,
        ),
        stat(
            "KV cache",
            "Capacity of all engines together. The caches are apart: nothing is shared between engines.\n\n"
            "Good: what you pay for.",
            Query(f"sum({_on('hitratio_capacity_bytes')})"),
            "bytes",
            none="Unknown",
        ),
        stat(
            "Tokens / s",
            "Traffic: prompt tokens looked up a second, all engines.\n\nGood: spread evenly over the engines (below).",
            Query(_on.flow(PROMPT_TOKENS, "$__rate_interval")),
            "short",
        ),
    ]


def _table() -> Panel:
    def now(expr: str) -> Query:
        return Query(expr, instant=True, table=True)

    def gauge(name: str) -> str:
        return f"max by ({_BY_ENGINE}) ({_on(name)})"

    ratio: Json = {
        "unit": "percentunit",
        "decimals": 1,
        "custom.cellOptions": {"type": "color-text"},
        "custom.width": 82,
    }
    names = {
        "model_name": "Model",
        "instance": "Instance",
        "engine": "Engine",
        "Value #A": "Observed",
        "Value #B": "Predicted",
        "Value #C": "Gap",
        "Value #D": "Traffic",
        "Value #E": "KV cache",
        "Value #F": "Needed",
        "Value #G": "T_C",
        "Value #H": "Fit age",
    }
    return Panel(
        kind="table",
        title=TABLE_PANEL,
        description=(
            "One line an engine, worst gap first. Needed: the capacity recommended for the target.\n\n"
            f"Good: every gap within ±{GAP:.0%}, like traffic and like survival times T_C on like engines, fits"
            f" younger than {STALE_SECONDS:.0f} s."
        ),
        queries=[
            now(_on.observed(WINDOW, by=_BY_ENGINE)),
            now(_on.predicted(WINDOW, by=_BY_ENGINE)),
            now(_engine_gap(WINDOW)),
            now(_on.flow(PROMPT_TOKENS, WINDOW, by=_BY_ENGINE)),
            now(gauge("hitratio_capacity_bytes")),
            now(gauge("hitratio_recommended_capacity_bytes")),
            now(gauge("hitratio_characteristic_time_seconds")),
            now(f"time() - {gauge('hitratio_last_fit_timestamp_seconds')}"),
        ],
        defaults={
            "noValue": "–",
            "color": {"mode": "thresholds"},
            "thresholds": thresholds((None, NEUTRAL)),
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "minWidth": 60},
        },
        styles=[
            Style("Model", {"custom.minWidth": 95}),
            Style("Instance", {"custom.minWidth": 125}),
            Style("Engine", {"custom.width": 65}),
            Style("Observed", {**ratio, "color": fixed(OBSERVED)}),
            Style("Predicted", {**ratio, "color": fixed(PREDICTED)}),
            Style(
                "Gap",
                {
                    "unit": "percentunit",
                    "decimals": 1,
                    "custom.width": 72,
                    "custom.cellOptions": {"type": "color-text"},
                    "thresholds": thresholds((None, "red"), (-GAP, "green"), (GAP, "orange")),
                },
            ),
            Style("Traffic", {"unit": "count:tok/s", "custom.width": 105}),
            Style("KV cache", {"unit": "bytes", "custom.width": 80}),
            Style("Needed", {"unit": "bytes", "custom.width": 80}),
            Style("T_C", {"unit": "dthms", "custom.width": 80}),
            Style(
                "Fit age",
                {
                    "unit": "s",
                    "decimals": 0,
                    "custom.width": 72,
                    "custom.cellOptions": {"type": "color-text"},
                    "thresholds": thresholds((None, NEUTRAL), (STALE_SECONDS, "red")),
                },
            ),
        ],
        options={
            "cellHeight": "sm",
            "showHeader": True,
            "footer": {"show": False, "reducer": ["sum"], "fields": ""},
            "sortBy": [{"desc": False, "displayName": "Gap"}],
        },
        transformations=[
            {"id": "merge", "options": {}},
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "Value #C"}]}},
            organize(names),
        ],
    )


def _courses() -> list[Panel]:
    return [
        timeseries(
            "Observed, by engine",
            "Observed hit ratio of each engine.\n\n"
            "Good: engines of one model side by side. One apart: its share of returning users differs (routing), or"
            " its cache does.",
            [Query(_on.observed(WINDOW, by=_BY_ENGINE), _EACH)],
            "percentunit",
            least=0,
        ),
        timeseries(
            "Gap, by engine",
            "Observed minus predicted of each engine; dashed: where alerts begin.\n\n"
            "Good: all between the lines. One below: that engine loses blocks. All below: look for a common cause, such"
            " as a reset by a roll-out.",
            [Query(_engine_gap(WINDOW), _EACH)],
            "percentunit",
            steps=((None, "red"), (-GAP, "transparent"), (GAP, "yellow")),
            soft=1.4 * GAP,
            decimals=1,
        ),
    ]


def _sums() -> list[Panel]:
    hits, expected = _on.flow(HIT_BLOCKS, WINDOW, by="model_name"), _on.predicted(WINDOW, by="model_name")
    return [
        timeseries(
            "Hit ratio, by model",
            "Hits summed over engines and divided by the sum of prompt blocks: a busy engine counts for more."
            " Solid: observed, dashed: predicted.\n\nGood: each pair on top of each other.",
            [
                Query(f"{hits} / ({_on.flow(PROMPT_BLOCKS, WINDOW, by='model_name')} > 0)", "{{model_name}}"),
                Query(expected, "{{model_name}}, predicted"),
            ],
            "percentunit",
            styles=[
                Style(
                    ".*, predicted",
                    {
                        "color": fixed(QUIET),
                        "custom.lineStyle": {"fill": "dash", "dash": [8, 6]},
                        "custom.lineWidth": 1,
                    },
                    regex=True,
                )
            ],
            least=0,
        ),
        timeseries(
            "Traffic, by engine",
            "Prompt tokens looked up a second.\n\n"
            "Good: even among engines of one model. An engine that gets more has a shorter survival time and a lower"
            " hit ratio at the same capacity.",
            [Query(_on.flow(PROMPT_TOKENS, WINDOW, by=_BY_ENGINE), _EACH)],
            "count:tok/s",
            least=0,
            fill=25,
            stacked=True,
        ),
    ]


def _spread() -> list[Panel]:
    observed = _on.observed(WINDOW, by=_BY_ENGINE)
    return [
        timeseries(
            "Hit ratio: best minus worst engine",
            "How far the engines of a model are apart. Ratios and parameters of engines are not averaged.\n\n"
            "Good: a few points; a wide spread means uneven routing or uneven caches.",
            [Query(f"max by (model_name) ({observed}) - min by (model_name) ({observed})", "{{model_name}}")],
            "percentunit",
            least=0,
            soft=0.1,
        ),
        timeseries(
            "Survival of a block T_C, by engine",
            "How long an unused block stays.\n\n"
            "Good: engines of one model together; twice as long on one means that traffic or capacity is uneven.",
            [Query(f"max by ({_BY_ENGINE}) ({_on('hitratio_characteristic_time_seconds')})", _EACH)],
            "dthms",
            least=0,
        ),
        timeseries(
            "Starts / s: λ0, by engine",
            "Conversations that begin a second.\n\nGood: engines of one model together.",
            [Query(f"max by ({_BY_ENGINE}) ({_on('hitratio_arrival_rate')})", _EACH)],
            "cps",
            least=0,
        ),
    ]


def _bars(queries: list[Query], unit: str, title: str, description: str, styles: list[Style], **more: object) -> Panel:
    names = {query.legend: query.legend for query in queries}
    return Panel(
        kind="barchart",
        title=title,
        description=description,
        queries=queries,
        defaults={
            "unit": unit,
            "noValue": "No traffic",
            "color": fixed(NEUTRAL),
            "custom": {"fillOpacity": 75, "lineWidth": 0, "axisPlacement": "auto", "axisLabel": ""},
            "min": 0,
            **({"max": more["most"]} if "most" in more else {}),
        },
        styles=styles,
        options={
            "barRadius": 0,
            "barWidth": 0.8,
            "fullHighlight": False,
            "groupWidth": 0.7,
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
            "orientation": "auto",
            "showValue": "never",
            "stacking": "normal" if more.get("stacked") else "none",
            "tooltip": {"mode": "multi", "sort": "none"},
            "xField": "Engine",
            "xTickLabelRotation": 0,
        },
        transformations=[
            {"id": "merge", "options": {}},
            organize(
                {"name": "Engine", **{f"Value #{chr(65 + index)}": name for index, name in enumerate(names)}},
                hidden=("model_name", "instance", "engine"),
            ),
        ],
    )


def _named(expr: str) -> str:
    """The engine's name as one label, for the axis of a bar chart."""
    return f'label_join({expr}, "name", " · ", "instance", "engine")'


def _capacity() -> Panel:
    queries = [
        Query(
            _named(f"max by ({_BY_ENGINE}) ({_on(f'hitratio_{which}capacity_bytes')})"), title, instant=True, table=True
        )
        for which, title in (("", "KV cache"), ("recommended_", "recommended"))
    ]
    return _bars(
        queries,
        "bytes",
        "KV cache against recommendation, by engine",
        "What each engine has, and what its own traffic needs for the target. For one pod specification take the"
        " highest. Other numbers of replicas, other routing or a pooled cache change each engine's traffic: this is not"
        " their answer.\n\nGood: the purple bars no higher than the grey ones.",
        [Style("KV cache", {"color": fixed(QUIET)}), Style("recommended", {"color": fixed("purple")})],
    )


def _fates() -> Panel:
    total = f"({_on.flow(FATES, WINDOW, by=_BY_ENGINE)} > 0)"
    queries = [
        Query(
            _named(f"{_on.flow(FATES, WINDOW, matcher(name), by=_BY_ENGINE)} / {total}"), name, instant=True, table=True
        )
        for name in FATE_COLORS
    ]
    return _bars(
        queries,
        "percentunit",
        "Fates of prompt blocks, by engine",
        "Where the prompt blocks of each engine went.\n\n"
        "Good: no red anywhere. More orange on one engine: it is too small for its share of the traffic.",
        [Style(name, {"color": fixed(color)}) for name, color in FATE_COLORS.items()],
        stacked=True,
        most=1,
    )

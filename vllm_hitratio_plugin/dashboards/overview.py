"""The overview: is the prefix cache doing what it should, would more of it help, and if not, why."""

from __future__ import annotations

from vllm_hitratio_plugin.dashboards.dashboard import MATCHERS, WINDOW, Dashboard, Placed, Row
from vllm_hitratio_plugin.dashboards.events import EVENTS
from vllm_hitratio_plugin.dashboards.fates import FATE_COLORS, matcher
from vllm_hitratio_plugin.dashboards.panel import (
    CEILING,
    NEUTRAL,
    OBSERVED,
    PREDICTED,
    QUIET,
    Json,
    Panel,
    Query,
    Style,
    band,
    fixed,
    line,
    organize,
    stat,
    thresholds,
    timeseries,
    to_number,
)
from vllm_hitratio_plugin.dashboards.promql import (
    CEILING as CEILING_POINT,
)
from vllm_hitratio_plugin.dashboards.promql import (
    CURVE_BLOCKS,
    ENGINE,
    FATES,
    FINITE,
    PROMPT_BLOCKS,
    PROMPT_TOKENS,
    SHADOW_CURVE_BLOCKS,
    Source,
)
from vllm_hitratio_plugin.dashboards.thresholds import GAP, STALE_SECONDS

UID = "hitratio-overview"

# Panels that alerts point to.
GAP_PANEL = "Gap, and where alerts begin"
MODEL_PANEL = "Model: predicted minus ideal LRU"
DEGRADED_PANEL = "Degraded"
AGE_PANEL = "Age of the fit"
COUNTER_PANEL = "Plugin against vLLM (requires vllm:*)"
RATIO_PANEL = "Hit ratio: predicted against observed"
CURVE_PANEL = "Hit ratio by capacity"

_on = Source(MATCHERS)

#: Share of the ceiling at which the curve is as good as flat.
SATURATED = 0.995


def overview() -> Dashboard:
    """The page `hitratio-overview`."""
    return Dashboard(
        uid=UID,
        title="vLLM / Hit ratio",
        description="Prefix-cache hit ratio: observed, predicted, and the KV cache capacity that a target needs.",
        rows=[
            Row("", [Placed(panel, width, 4) for panel, width in zip(_figures(), (4, 4, 3, 4, 5, 4), strict=True)]),
            Row("Is the cache doing what it should?", [Placed(_prediction(), 16, 11), Placed(_gap(), 8, 11)]),
            Row("Would more cache help?", [Placed(_curve(), 14, 11), Placed(_curve_table(), 10, 11)]),
            Row(
                "Where did the prompt blocks go?",
                [Placed(_fates(), 12, 9), Placed(_fate_shares(), 6, 9), Placed(_reasons(), 6, 9)],
            ),
            Row("If the gap is not zero: the engine or the model?", [Placed(p, 12, 8) for p in _whose_error()]),
            Row(
                "What the prediction rests on",
                [
                    Placed(_arrivals(), 6, 7),
                    Placed(_workload(), 6, 7),
                    Placed(_lifetime(), 6, 7),
                    Placed(_turns(), 6, 7),
                    Placed(_survival(), 12, 9),
                    Placed(_interarrival(), 12, 9),
                ],
            ),
            Row(
                "Health of the measurement",
                [Placed(p, width, 7) for p, width in zip(_health(), (8, 8, 8, 12, 6, 6, 12, 12), strict=True)],
                collapsed=True,
            ),
        ],
        annotations=EVENTS,
    )


def _figures() -> list[Panel]:
    gap_steps = ((None, "red"), (-GAP, "green"), (GAP, "orange"))
    short: Json = {
        "type": "special",
        "options": {"match": "null", "result": {"text": "None", "index": 1}},
    }
    return [
        stat(
            "Observed",
            "Share of prompt blocks that the prefix cache served.\n\n"
            "Good: close to the prediction; how high it can be is for the workload to say (the ceiling below).",
            Query(_on.observed(WINDOW)),
            "percentunit",
            color=OBSERVED,
            decimals=1,
        ),
        stat(
            "Predicted",
            "Share that an LRU cache of this capacity should serve on the same prompts.\n\n"
            "Good: within the alert's threshold of what is observed.",
            Query(_on.predicted(WINDOW)),
            "percentunit",
            color=PREDICTED,
            decimals=1,
        ),
        stat(
            "Gap",
            "Observed minus predicted, in points of hit ratio.\n\n"
            f"Good: between -{GAP:.0%} and +{GAP:.0%}. Red: the cache gives less than it should (look for resets,"
            " routing, preemption). Orange: the model is wrong, the cache is not.",
            Query(_on.gap(WINDOW)),
            "percentunit",
            steps=gap_steps,
            decimals=1,
        ),
        stat(
            "KV cache",
            "Capacity of the prefix cache, per engine (the largest, where they differ).\n\n"
            "Good: at or above the recommendation.",
            Query(f"max({_on('hitratio_capacity_bytes')})"),
            "bytes",
            none="Unknown",
        ),
        stat(
            "Recommended",
            "Capacity per engine at which the target hit ratio is predicted (the largest, where engines differ)."
            " None: no target is set, or no capacity reaches it.\n\nGood: at or below the capacity there is.",
            Query(f"max({_on('hitratio_recommended_capacity_bytes')})"),
            "bytes",
            none="None",
            mappings=[short],
        ),
        stat(
            "Tokens / s",
            "Traffic: prompt tokens looked up a second.\n\nGood: enough that the window holds some hundred requests; an"
            " idle engine has no hit ratio.",
            Query(_on.flow(PROMPT_TOKENS, "$__rate_interval")),
            "short",
        ),
    ]


def _prediction() -> Panel:
    predicted = _on.predicted(WINDOW)
    error = _on.quadrature("hitratio_gap_stderr", WINDOW)
    return timeseries(
        RATIO_PANEL,
        "The band is the prediction ± 3 standard errors of the difference; the ceiling is the share of blocks that were"
        " ever seen before. Ratios are of sums of blocks over the chosen window.\n\n"
        "Good: the blue line inside the band. Below it, the cache loses what an LRU cache would keep; far below the"
        " ceiling with the prediction, it is too small.",
        [
            Query(_on.observed(WINDOW), "observed"),
            Query(predicted, "predicted"),
            Query(_on.predicted(WINDOW, estimator='estimator="mean_field"'), "predicted, mean field"),
            Query(_on.ratio(CURVE_BLOCKS, WINDOW, CEILING_POINT), "ceiling"),
            Query(f"max({_on('hitratio_target_ratio')})", "target"),
            Query(f"{predicted} + 3 * ({error})", "band, upper"),
            Query(f"clamp_min({predicted} - 3 * ({error}), 0)", "band, lower"),
        ],
        "percentunit",
        styles=[
            line("observed", OBSERVED, width=3),
            line("predicted", PREDICTED, dashed=True),
            line("predicted, mean field", QUIET, dashed=True, width=1),
            line("ceiling", CEILING, width=1),
            line("target", "purple", dashed=True, width=1),
            *band("band, upper", "band, lower", PREDICTED),
        ],
        least=0,
    )


def _gap() -> Panel:
    gap = _on.weighted("hitratio_gap_ratio", WINDOW)
    error = _on.quadrature("hitratio_gap_stderr", WINDOW)
    return timeseries(
        GAP_PANEL,
        "Observed minus predicted over the engines' own window, ± 3 standard errors of that difference. The red line is"
        f" the threshold of HitRatioBelowPrediction, the yellow one of HitRatioAbovePrediction (±{GAP:.0%}).\n\n"
        "Good: zero inside the band.",
        [
            Query(gap, "gap"),
            Query(f"{gap} + 3 * ({error})", "band, upper"),
            Query(f"{gap} - 3 * ({error})", "band, lower"),
        ],
        "percentunit",
        styles=[line("gap", OBSERVED), *band("band, upper", "band, lower", OBSERVED)],
        steps=((None, "red"), (-GAP, "transparent"), (GAP, "yellow")),
        color=fixed(OBSERVED),
        soft=1.4 * GAP,
        decimals=1,
    )


def _curve_ratio(counter: str = CURVE_BLOCKS) -> str:
    """Hit ratio by capacity; an engine counts at the grid points that it has."""
    hits = _on.flow(counter, WINDOW, FINITE, by="capacity_blocks")
    there = (
        f"sum by (capacity_blocks) ({_on.rate(counter, WINDOW, FINITE)} * 0"
        f" + on ({ENGINE}) group_left () {_on.rate(PROMPT_BLOCKS, WINDOW)})"
    )
    return f"{hits} / ({there} > 0)"


def _at(capacity: str, ratio: str) -> str:
    """One point of the capacity plane: the capacity as a label, as the curve has it."""
    return f'count_values("capacity_blocks", round({capacity})) * 0 + scalar({ratio})'


def _curve() -> Panel:
    now = f"max({_on('hitratio_capacity_blocks')})"
    recommended = f"max({_on('hitratio_recommended_capacity_blocks')})"
    ceiling = _on.ratio(CURVE_BLOCKS, WINDOW, CEILING_POINT)
    rising = f"({_curve_ratio()}) <= scalar({SATURATED} * ({ceiling}))"
    point: Json = {"custom.drawStyle": "points", "custom.showPoints": "always", "custom.lineWidth": 0}
    return Panel(
        kind="trend",
        title=CURVE_PANEL,
        description=(
            "Predicted hit ratio of the same prompts at other capacities of each engine, traffic routed as now. The"
            " blue point is what is observed at the capacity there is, the purple one the capacity recommended for the"
            " target. The grey line is what an ideal LRU cache of that capacity did hit on the same requests. Where the"
            " curve has reached the ceiling it is cut off.\n\n"
            "Good: the blue point on the curve, and right of the bend. A steep curve at the blue point: more cache"
            " helps. A flat one: it does not, whatever the ratio. This is not the curve of a pooled cache."
        ),
        queries=[
            Query(rising, instant=True, table=True),
            Query(_at(now, _on.observed(WINDOW)), instant=True, table=True),
            Query(_at(recommended, f"max({_on('hitratio_target_ratio')})"), instant=True, table=True),
            Query(f"({rising}) * 0 + scalar({ceiling})", instant=True, table=True),
            Query(
                f"({_curve_ratio(SHADOW_CURVE_BLOCKS)}) and on (capacity_blocks) ({rising})", instant=True, table=True
            ),
        ],
        defaults={
            "unit": "percentunit",
            "noValue": "No traffic",
            "color": fixed(PREDICTED),
            "custom": {
                "drawStyle": "line",
                "lineInterpolation": "linear",
                "lineWidth": 2,
                "fillOpacity": 0,
                "showPoints": "never",
                "spanNulls": True,
                "axisBorderShow": False,
            },
        },
        styles=[
            # Limits in the defaults would clamp the horizontal axis as well.
            Style("predicted|observed now|recommended|ceiling|ideal LRU", {"min": 0}, regex=True),
            Style("Capacity", {"unit": "locale", "custom.axisLabel": "capacity of an engine, blocks"}),
            Style("predicted", {"color": fixed(PREDICTED), "custom.fillOpacity": 10}),
            Style("ideal LRU", {"color": fixed(QUIET), "custom.lineWidth": 1}),
            Style("observed now", {"color": fixed(OBSERVED), **point, "custom.pointSize": 14}),
            Style("recommended", {"color": fixed("purple"), **point, "custom.pointSize": 14}),
            Style(
                "ceiling",
                {"color": fixed(CEILING), "custom.lineWidth": 1, "custom.lineStyle": {"fill": "dash", "dash": [8, 6]}},
            ),
        ],
        options={
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "none"},
            "xField": "Capacity",
        },
        transformations=[
            {"id": "merge", "options": {}},
            to_number("capacity_blocks"),
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "capacity_blocks"}]}},
            organize(
                {
                    "capacity_blocks": "Capacity",
                    "Value #A": "predicted",
                    "Value #B": "observed now",
                    "Value #C": "recommended",
                    "Value #D": "ceiling",
                    "Value #E": "ideal LRU",
                }
            ),
        ],
    )


def _curve_table() -> Panel:
    ceiling = _on.ratio(CURVE_BLOCKS, WINDOW, CEILING_POINT)
    now = _on.predicted(WINDOW)
    curve = f"(({_curve_ratio()}) >= scalar(0.3 * {now})) <= scalar({SATURATED} * ({ceiling}))"
    bytes_per_block = f"max({_on('hitratio_capacity_bytes')} / {_on('hitratio_capacity_blocks')})"
    return Panel(
        kind="table",
        title="The same in numbers",
        description=(
            "What each capacity of an engine would serve, from 0.3 of today's figure up to the ceiling, and the"
            " change against the prediction for today's capacity.\n\n"
            "Good: nothing much to gain below what you are ready to pay for."
        ),
        queries=[
            Query(f"({curve}) * 0 + scalar({bytes_per_block})", instant=True, table=True),
            Query(curve, instant=True, table=True),
            Query(f"({curve}) - scalar({now})", instant=True, table=True),
        ],
        defaults={
            "noValue": "No traffic",
            "color": {"mode": "thresholds"},
            "thresholds": thresholds((None, NEUTRAL)),
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "minWidth": 60},
        },
        styles=[
            Style("Blocks", {"unit": "locale", "custom.width": 80}),
            Style("Size", {"unit": "bytes", "custom.width": 95}),
            Style(
                "Hit ratio",
                {
                    "unit": "percentunit",
                    "decimals": 1,
                    "min": 0,
                    "max": 1,
                    "color": fixed(PREDICTED),
                    "custom.cellOptions": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
                },
            ),
            Style(
                "Change",
                {
                    "unit": "percentunit",
                    "decimals": 1,
                    "custom.width": 85,
                    "custom.cellOptions": {"type": "color-text"},
                    "thresholds": thresholds((None, "red"), (-0.005, NEUTRAL), (0.005, "green")),
                },
            ),
        ],
        options={"cellHeight": "sm", "showHeader": True, "footer": {"show": False, "reducer": ["sum"], "fields": ""}},
        transformations=[
            {"id": "merge", "options": {}},
            to_number("capacity_blocks"),
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "capacity_blocks"}]}},
            {
                "id": "calculateField",
                "options": {
                    "alias": "Size",
                    "binary": {"left": "capacity_blocks", "operator": "*", "right": "Value #A"},
                    "mode": "binary",
                    "reduce": {"reducer": "sum"},
                },
            },
            organize(
                {"capacity_blocks": "Blocks", "Size": "Size", "Value #B": "Hit ratio", "Value #C": "Change"},
                hidden=("Value #A",),
            ),
        ],
    )


def _fates() -> Panel:
    return timeseries(
        "Fates of prompt blocks",
        "Every prompt block has one fate. hit: served from the cache. partial: the last, unfilled block, which no cache"
        " can serve. cold: never seen before. capacity: seen, and evicted because the cache is too small; more memory"
        " brings these back. unexplained: an ideal cache of this size would still have it.\n\n"
        "Good: no red. Much orange: the cache is too small. Much light blue: the workload has nothing to reuse.",
        [
            Query(f"{_on.flow(FATES, WINDOW, matcher(name))} / ({_on.flow(FATES, WINDOW)} > 0)", name)
            for name in FATE_COLORS
        ],
        "percentunit",
        styles=[line(fate, color, width=1) for fate, color in FATE_COLORS.items()],
        least=0,
        most=1,
        fill=70,
        stacked=True,
    )


def _fate_shares() -> Panel:
    def spent(*fate: str) -> str:
        return f"increase({_on(FATES, *fate)}[$__range])"

    return Panel(
        kind="bargauge",
        title="Shares",
        description=(
            "The fates over the whole time range.\n\n"
            "Good: unexplained at zero; capacity smaller than what you would pay to get back."
        ),
        queries=[
            Query(f"sum({spent(matcher(name))}) / (sum({spent()}) > 0)", name, instant=True) for name in FATE_COLORS
        ],
        defaults={
            "unit": "percentunit",
            "decimals": 1,
            "min": 0,
            "max": 1,
            "noValue": "No traffic",
            "color": fixed(OBSERVED),
            "thresholds": thresholds((None, OBSERVED)),
        },
        styles=[Style(fate, {"color": fixed(color)}) for fate, color in FATE_COLORS.items()],
        options={
            "displayMode": "basic",
            "maxVizHeight": 60,
            "minVizHeight": 16,
            "minVizWidth": 8,
            "namePlacement": "auto",
            "orientation": "horizontal",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showUnfilled": True,
            "sizing": "auto",
            "valueMode": "color",
        },
    )


def _reasons() -> Panel:
    spent = f"increase({_on(FATES)}[$__range])"
    return Panel(
        kind="table",
        title="Why",
        description=(
            "The fates by reason, over the time range. partial: tail is the unfilled block, dropped what speculative"
            " decoding gives up. cold: new content, a history that diverged, or content cached under another adapter"
            " or salt (namespace). unexplained: missing without a reason known, or lost in a reset.\n\n"
            "Good: nothing under unexplained; little under diverged and namespace, which better prompts would turn"
            " into hits."
        ),
        queries=[
            Query(
                f'label_join(sum by (fate, reason) ({spent}), "why", ": ", "fate", "reason")'
                f" / on () group_left () (sum({spent}) > 0)",
                instant=True,
                table=True,
            )
        ],
        defaults={
            "noValue": "No traffic",
            "color": {"mode": "thresholds"},
            "thresholds": thresholds((None, NEUTRAL)),
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "minWidth": 60},
        },
        styles=[
            Style("Share", {"unit": "percentunit", "decimals": 1, "custom.width": 75}),
        ],
        options={
            "cellHeight": "sm",
            "showHeader": True,
            "footer": {"show": False, "reducer": ["sum"], "fields": ""},
            "sortBy": [{"desc": True, "displayName": "Share"}],
        },
        transformations=[
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "Value", "desc": True}]}},
            organize({"why": "Fate and reason", "Value": "Share"}, hidden=("fate", "reason")),
        ],
    )


def _whose_error() -> list[Panel]:
    panels = []
    for metric, title, color, meaning in (
        (
            "engine",
            "Engine: observed minus ideal LRU",
            "red",
            "What the engine serves beyond (above zero) or short of (below) an ideal LRU cache of its size on the very"
            " same requests; exact, without any model.\n\n"
            "Good: zero inside the band. Below: blocks get lost (resets, pinning, another replica served"
            " the last turn).",
        ),
        (
            "model",
            MODEL_PANEL,
            "purple",
            "How far the prediction is from an ideal LRU cache on the very same requests.\n\n"
            "Good: zero inside the band. Away from it: the traffic changes faster than the window follows, and the"
            " prediction is to be read with care.",
        ),
    ):
        gap = _on.weighted(f"hitratio_{metric}_gap_ratio", WINDOW)
        error = _on.quadrature(f"hitratio_{metric}_gap_stderr", WINDOW)
        panels.append(
            timeseries(
                title,
                meaning,
                [
                    Query(gap, f"{metric} gap"),
                    Query(f"{gap} + 3 * ({error})", "band, upper"),
                    Query(f"{gap} - 3 * ({error})", "band, lower"),
                ],
                "percentunit",
                styles=[line(f"{metric} gap", color), *band("band, upper", "band, lower", color)],
                color=fixed(color),
                soft=GAP,
                decimals=1,
            )
        )
    return panels


_EACH = "{{instance}} · {{engine}}"


def _per_engine(gauge: str) -> str:
    return f"max by (instance, engine) ({_on(gauge)})"


def _arrivals() -> Panel:
    return timeseries(
        "Starts / s: λ0",
        "Conversations that begin a second.\n\nGood: what your clients are expected to send; k times the traffic"
        " needs k times the cache for the same hit ratio.",
        [Query(_per_engine("hitratio_arrival_rate"), _EACH)],
        "cps",
        least=0,
    )


def _workload() -> Panel:
    return timeseries(
        "Asked: A_R, A_H^hash",
        "Blocks that a conversation asks for. A_R: prompt blocks over all its turns. A_H^hash: those of"
        " them that a cache of any size could serve.\n\n"
        "Good: the two close together; their ratio is the most that any cache can reach.",
        [
            Query(_on.weighted("hitratio_history_workload_blocks", WINDOW), "A_R"),
            Query(_on.weighted("hitratio_reusable_workload_blocks", WINDOW), "A_H^hash"),
        ],
        "short",
        styles=[line("A_R", "purple"), line("A_H^hash", CEILING)],
        least=0,
    )


def _lifetime() -> Panel:
    return timeseries(
        "Written: E[B]",
        "Blocks that a conversation fills over its life: with λ0, the pressure on the cache.\n\nGood: steady. A jump:"
        " longer conversations, or a template that rewrites its history.",
        [Query(_per_engine("hitratio_lifetime_blocks"), _EACH)],
        "short",
        least=0,
    )


def _turns() -> Panel:
    return timeseries(
        "Turns: E[M]",
        "Prompts of a conversation.\n\nGood: above 1; at 1 nobody comes back and there is nothing to reuse but shared"
        " prefixes.",
        [Query(_per_engine("hitratio_turns_per_conversation"), _EACH)],
        "short",
        least=0,
    )


def _survival() -> Panel:
    buckets = _on.flow("hitratio_interarrival_seconds_bucket", WINDOW, by="le")
    survival = _on("hitratio_characteristic_time_seconds")
    return timeseries(
        "Survival of a block, T_C, against pauses",
        "An unused block is evicted after T_C. A user who pauses longer finds the history gone; the percentiles are of"
        " those pauses.\n\nGood: T_C above most pauses. Under the median, half of the returning users pay the whole"
        " prefill again.",
        [
            Query(f"min({survival})", "T_C"),
            Query(f"max({survival})", "T_C, longest engine"),
            *(
                Query(f"histogram_quantile({share}, {buckets})", f"pause, {name}")
                for share, name in ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"))
            ),
        ],
        "dthms",
        styles=[
            line("T_C", CEILING, width=3),
            line("T_C, longest engine", CEILING, width=1, dashed=True),
            line("pause, median", "super-light-purple", width=1),
            line("pause, 90 %", "light-purple", width=1),
            line("pause, 99 %", "dark-purple", width=1),
        ],
        log=True,
    )


def _interarrival() -> Panel:
    return Panel(
        kind="heatmap",
        title="Pauses between turns, F",
        description=(
            "How many turns came back after which pause.\n\n"
            "Good: the bright bands below T_C (left panel). A band that wanders up: users think longer, and the hit"
            " ratio will fall."
        ),
        queries=[
            Query(
                f"sum by (le) (increase({_on('hitratio_interarrival_seconds_bucket')}[$__rate_interval]))",
                "{{le}}",
                heatmap=True,
            )
        ],
        defaults={"custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}},
        options={
            "calculate": False,
            "cellGap": 1,
            "cellValues": {"unit": "short", "decimals": 0},
            "color": {
                "exponent": 0.5,
                "fill": "dark-orange",
                "mode": "scheme",
                "reverse": False,
                "scale": "exponential",
                "scheme": "Purples",
                "steps": 64,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": True},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": "s"},
        },
        interval="1m",
    )


def _degraded() -> Panel:
    states = {"0": ("works", "green", 0), "1": ("degraded", "red", 1)}
    return Panel(
        kind="state-timeline",
        title=DEGRADED_PANEL,
        description=(
            "What keeps the plugin from its work, by reason, on any engine chosen.\n\n"
            "Good: all green. The runbook of HitRatioDegraded says what each reason means."
        ),
        queries=[Query(f"max by (reason) ({_on('hitratio_degraded')})", "{{reason}}")],
        defaults={
            "unit": "short",
            "noValue": "None",
            "color": {"mode": "thresholds"},
            "thresholds": thresholds((None, "green"), (1, "red")),
            "mappings": [
                {
                    "type": "value",
                    "options": {
                        value: {"text": text, "color": color, "index": index}
                        for value, (text, color, index) in states.items()
                    },
                }
            ],
            "custom": {"fillOpacity": 60, "lineWidth": 0, "spanNulls": False},
        },
        options={
            "alignValue": "left",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "mergeValues": True,
            "rowHeight": 0.8,
            "showValue": "never",
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


def _health() -> list[Panel]:
    ours = _on.rate("hitratio_hit_tokens_total", WINDOW)
    # Prometheus 2 stores vLLM's names without the colon (prometheus_client from 0.23 on), Prometheus 3 with it.
    theirs = (
        f"({_on.rate('vllm:prefix_cache_hits_total', WINDOW)} or {_on.rate('vllm_prefix_cache_hits_total', WINDOW)})"
    )
    return [
        timeseries(
            AGE_PANEL,
            "Seconds since the last fit of each engine.\n\n"
            f"Good: well under the red line ({STALE_SECONDS:.0f} s); beyond it the prediction is old.",
            [Query(f"time() - max by (instance, engine) ({_on('hitratio_last_fit_timestamp_seconds')})", _EACH)],
            "s",
            least=0,
            steps=((None, "transparent"), (STALE_SECONDS, "red")),
        ),
        timeseries(
            "What a fit costs",
            "Time one fit takes, off the engine's step.\n\nGood: far below the interval of the fits.",
            [Query(_per_engine("hitratio_fit_duration_seconds"), _EACH)],
            "s",
            least=0,
        ),
        timeseries(
            "Window",
            "Traffic that the gauges rest on. It grows where traffic is thin, or where blocks survive long.\n\n"
            "Good: at least three times T_C.",
            [Query(_per_engine("hitratio_window_seconds"), _EACH)],
            "s",
            least=0,
        ),
        _degraded(),
        timeseries(
            "Memory of the index",
            "What the plugin keeps to know which blocks come back; bounded.\n\nGood: level.",
            [Query(_per_engine("hitratio_index_bytes"), _EACH)],
            "bytes",
            least=0,
        ),
        timeseries(
            "Blocks in index and in use",
            "Remembered: blocks in the index. Pinned: blocks in use, which cannot be evicted and shrink the cache.\n\n"
            "Good: pinned far below the capacity.",
            [
                Query(f"sum({_on('hitratio_index_blocks')})", "remembered"),
                Query(f"sum({_on('hitratio_capacity_blocks')})", "capacity"),
                Query(f"sum({_on('hitratio_pinned_blocks')})", "pinned"),
            ],
            "short",
            styles=[line("remembered", "purple"), line("capacity", QUIET, dashed=True), line("pinned", "orange")],
            least=0,
        ),
        timeseries(
            COUNTER_PANEL,
            "Tokens served from the cache a second, as this plugin and as vLLM count them, on the same target.\n\n"
            "Good: one line over the other. vLLM up to 0.26 counts every lookup of a waiting request again.",
            [Query(f"sum({ours})", "plugin"), Query(f"sum({theirs})", "vLLM")],
            "short",
            styles=[line("plugin", OBSERVED, width=3), line("vLLM", PREDICTED, dashed=True, width=1)],
            least=0,
        ),
        Panel(
            kind="table",
            title="Versions",
            description=(
                "What runs where, and where the block pool puts freed blocks without a hash.\n\n"
                "Good: one version of each."
            ),
            queries=[
                Query(
                    f"max by (instance, engine, version, vllm_version, unhashed) ({_on('hitratio_build_info')})",
                    instant=True,
                    table=True,
                )
            ],
            defaults={
                "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "minWidth": 60},
                "noValue": "None",
                "color": {"mode": "thresholds"},
                "thresholds": thresholds((None, NEUTRAL)),
            },
            options={
                "cellHeight": "sm",
                "showHeader": True,
                "footer": {"show": False, "reducer": ["sum"], "fields": ""},
            },
            transformations=[
                organize(
                    {
                        "instance": "Instance",
                        "engine": "Engine",
                        "version": "Plugin",
                        "vllm_version": "vLLM",
                        "unhashed": "Unhashed to",
                    },
                    hidden=("Value",),
                ),
            ],
        ),
    ]

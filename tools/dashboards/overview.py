"""The overview: does the prefix cache do what it should, would more of it help, and if not, why?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, timeseries

from tools.dashboards import capacity, health, outcomes, workload
from tools.dashboards.page import Json, Row, page
from tools.dashboards.panels import band, curve, differences, figure, judged, with_limits
from tools.dashboards.panels import timeseries as curves
from tools.dashboards.promql import CURVE_BLOCKS, INFINITE, PROMPT_TOKENS
from tools.dashboards.style import CEILING, MUTED, OBSERVED, PREDICTED, TARGET, TIER, fixed
from tools.dashboards.thresholds import DIVERGENCE, SIGMAS
from tools.dashboards.variables import CHOSEN, RECENT

UID = "hitratio-overview"


def overview() -> Json:
    """The dashboard `hitratio-overview`."""
    divergence = _with_error("Divergence and alert thresholds", "divergence", OBSERVED, soft=1.4 * DIVERGENCE)
    engine = _with_error("Engine: observed minus ideal LRU", "engine_divergence", "red", soft=DIVERGENCE)
    model = _with_error("Model: predicted minus ideal LRU", "model_divergence", "purple", soft=DIVERGENCE)
    return page(
        UID,
        "vLLM / Hit ratio",
        "Prefix-cache hit ratio: observed, predicted, and the KV cache capacity that a target needs.",
        Row("", 4, (4, 4, 4, 4, 5, 3), _figures()),
        Row("Is the cache doing what it should?", 11, (16, 8), [_hit_ratio(), with_limits(divergence, *LIMITS)]),
        Row("Would more cache help?", 11, (14, 10), [capacity.curve(), capacity.curve_in_numbers()]),
        Row(
            "Where did the prompt blocks go?",
            9,
            (11, 6, 7),
            [outcomes.over_time(), outcomes.totals(), outcomes.reasons()],
        ),
        Row("If the divergence is not zero: the engine or the model?", 8, (12, 12), [engine, model]),
        Row("Did the traffic change?", 8, (16, 8), [workload.drift(), workload.significant_drift()]),
        Row("What the prediction rests on", 7, (6, 6, 6, 6), workload.averages()),
        Row("", 9, (12, 12), [workload.time_between_turns(), workload.distribution()]),
        Row("Health of the measurement", 7, (8, 8, 8, 12, 6, 6, 12, 12), health.panels(), collapsed=True),
    )


#: Lines where the divergence alerts begin.
LIMITS = ((None, "red"), (-DIVERGENCE, "transparent"), (DIVERGENCE, "yellow"))


def _figures() -> list[stat.Panel]:
    divergence = figure("Divergence", "percentunit", CHOSEN.divergence()).decimals(1)
    recommended = CHOSEN("hitratio_recommended_capacity_bytes")
    return [
        figure("Observed", "percentunit", CHOSEN.observed(), OBSERVED).decimals(1),
        figure("Predicted", "percentunit", CHOSEN.predicted(), PREDICTED).decimals(1),
        judged(divergence, (None, "red"), (-DIVERGENCE, "green"), (DIVERGENCE, "orange")),
        figure("KV cache", "bytes", f"max({CHOSEN('hitratio_capacity_bytes')})", none="Unknown"),
        figure("Recommended", "bytes", f"max({recommended})", none="None"),
        figure("Tok / s", "short", RECENT.flow(PROMPT_TOKENS)),
    ]


def _hit_ratio() -> timeseries.Panel:
    predicted, error = CHOSEN.predicted(), CHOSEN.quadrature("hitratio_divergence_ratio_stderr")
    mean_field = CHOSEN.predicted(estimator='estimator="mean_field"')
    upper, lower = f"{predicted} + {SIGMAS} * ({error})", f"clamp_min({predicted} - {SIGMAS} * ({error}), 0)"
    return curves(
        "Hit ratio: predicted and observed",
        "percentunit",
        curve(CHOSEN.observed(), "observed", OBSERVED, width=3),
        curve(CHOSEN.served_with_tier(), "with second tier", TIER),
        curve(predicted, "predicted", PREDICTED, dashed=True),
        curve(mean_field, "predicted, mean field", MUTED, width=1, dashed=True),
        curve(CHOSEN.ratio(CURVE_BLOCKS, INFINITE), "ceiling", CEILING, width=1),
        curve(f"max({CHOSEN('hitratio_target_ratio')})", "target", TARGET, width=1, dashed=True),
        *band(upper, lower, PREDICTED),
    )


def _with_error(title: str, name: str, color: str, *, soft: float) -> timeseries.Panel:
    """A divergence with its standard errors as a band."""
    value = CHOSEN.weighted(f"hitratio_{name}_ratio")
    error = CHOSEN.quadrature(f"hitratio_{name}_ratio_stderr")
    edges = band(f"{value} + {SIGMAS} * ({error})", f"{value} - {SIGMAS} * ({error})", color)
    panel = differences(title, curve(value, name.replace("_", " "), color), *edges, soft=soft)
    return panel.color_scheme(fixed(color))

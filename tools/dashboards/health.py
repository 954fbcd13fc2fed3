"""Whether the plugin itself works: age and cost of the estimates, memory, degradations, agreement with vLLM."""

from __future__ import annotations

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models

from tools.dashboards.panels import column, curve, grid, per_engine, query, states, timeseries, with_limits
from tools.dashboards.style import MUTED, OBSERVED, PREDICTED
from tools.dashboards.thresholds import STALE_SECONDS
from tools.dashboards.variables import CHOSEN
from tools.dashboards.workload import engines


def panels() -> list[Builder[models.Panel]]:
    """All panels of the row."""
    age = timeseries("Age of the fit", "s", per_engine(f"time() - {engines('hitratio_last_fit_timestamp_seconds')}"))
    degraded = query(f"max by (reason) ({CHOSEN('hitratio_degraded')})", "{{reason}}")
    # Prometheus 2 stores vLLM's names without the colon (prometheus_client 0.23 and newer), Prometheus 3 with it.
    theirs = " or ".join(CHOSEN.rate(f"vllm{sign}prefix_cache_hits_total") for sign in ":_")
    return [
        with_limits(age, (None, "transparent"), (STALE_SECONDS, "red")),
        timeseries("Cost of a fit", "s", per_engine(engines("hitratio_fit_duration_seconds"))),
        timeseries("Window", "s", per_engine(engines("hitratio_window_seconds"))),
        states("Degraded", degraded, "works", "degraded", "red"),
        timeseries("Memory of the index", "bytes", per_engine(engines("hitratio_index_bytes"))),
        timeseries(
            "Index and blocks in use",
            "short",
            curve(f"sum({CHOSEN('hitratio_index_blocks')})", "remembered", "purple"),
            curve(f"sum({CHOSEN('hitratio_capacity_blocks')})", "capacity", MUTED, dashed=True),
            curve(f"sum({CHOSEN('hitratio_in_use_blocks')})", "in use", "orange"),
        ),
        timeseries(
            "Hit tokens: plugin and vLLM (requires vllm:*)",
            "short",
            curve(CHOSEN.flow("hitratio_hit_tokens_total"), "plugin", OBSERVED, width=3),
            curve(f"sum({theirs})", "vLLM", PREDICTED, width=1, dashed=True),
        ),
        grid(
            "Versions",
            [f"max by (instance, engine, version, vllm_version, unhashed) ({CHOSEN('hitratio_build_info')})"],
            {
                "instance": column("Instance", more={"custom.minWidth": 125}),
                "engine": column("Engine"),
                "version": column("Plugin"),
                "vllm_version": column("vLLM"),
                "unhashed": column("Unhashed to"),
            },
            hidden=["Value"],
        ).no_value("None"),
    ]

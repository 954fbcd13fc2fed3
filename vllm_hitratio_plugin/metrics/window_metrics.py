"""What is measured of the current window, whatever the kind of cache; a part of the catalogue."""

from __future__ import annotations

from vllm_hitratio_plugin.metrics.increases import Increases
from vllm_hitratio_plugin.metrics.metric import Metric, gauge, where_modelled
from vllm_hitratio_plugin.metrics.sources import ByCapacity, ByOutcome, Value

WINDOW: tuple[Metric, ...] = (
    gauge("hitratio_observed_ratio", "Observed hit ratio of the current window, in blocks.", "estimate.observed"),
    gauge("hitratio_observed_ratio_stderr", "Standard error of the observed hit ratio.", "estimate.observed_stderr"),
    gauge(
        "hitratio_in_use_blocks",
        "Mean blocks in use by running requests when a request is admitted, over the current window.",
        "estimate.in_use_blocks",
    ),
    gauge("hitratio_window_seconds", "Length of the current window.", "estimate.window_seconds"),
    gauge("hitratio_window_requests", "Requests in the current window.", "estimate.requests"),
    gauge(
        "hitratio_window_reuses",
        "Runs of reused blocks in the current window: the sample that the curve rests on.",
        "estimate.reuses",
    ),
    gauge(
        "hitratio_ready",
        "1 if the current window holds enough data for an estimate, otherwise 0.",
        Value("estimate.ready", flag=True),
    ),
    gauge(
        "hitratio_window_increase",
        "Increase of a counter over about one window, by the counter's name in /hitratio.json; for one bucket of a "
        "histogram, bucket is its upper bound.",
        Increases(),
        "counter",
        "bucket",
    ),
    gauge("hitratio_window_increase_seconds", "Time that hitratio_window_increase covers.", "earlier_seconds"),
    *where_modelled(
        gauge(
            "hitratio_window_prompt_blocks_by_outcome",
            "Prompt blocks of the current window by what happened to them and why.",
            ByOutcome("estimate.outcomes"),
            "outcome",
            "reason",
        ),
        gauge(
            "hitratio_curve_characteristic_time_seconds",
            "How long an unused block would stay in a cache of another capacity; +Inf if nothing would evict it.",
            ByCapacity("estimate.characteristic_times", endless=True),
            "capacity_blocks",
        ),
    ),
)

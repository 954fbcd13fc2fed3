"""The alerts: conditions, words and severities, for Prometheus and for Grafana from one source.

Conditions name recorded series; :func:`inlined` replaces these by their queries where no recording rules run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vllm_hitratio_plugin.dashboards import fleet, overview
from vllm_hitratio_plugin.dashboards.promql import ENGINE
from vllm_hitratio_plugin.dashboards.recording import LONG, SHORT, recordings
from vllm_hitratio_plugin.dashboards.thresholds import (
    CAPACITY_FACTOR,
    COUNTER_MISMATCH,
    GAP,
    SIGMAS,
    STALE_SECONDS,
    TRAFFIC_FLOOR,
)

_WHO = "Engine {{ $labels.engine }} of {{ $labels.model_name }} on {{ $labels.instance }}"

#: Reason under which the plugin says that vLLM runs without prefix caching.
CACHING_OFF = "prefix_caching_off"

#: The same for a kind of KV cache that is outside the model: observed figures only, and nothing to repair.
NOT_MODELLED = "not_modelled"


@dataclass(frozen=True)
class Alert:
    """One alert.

    Args:
        name: As it is paged, and the name of its runbook page.
        severity: "warning": somebody should look today; "info": worth knowing.
        wait: How long the condition has to hold.
        expr: PromQL; it fires where there is a result.
        summary: One sentence.
        description: What it means and where to look; `{{ $value }}` is the expression's value.
        keep: How long it goes on after the condition ended, so that one noisy window ends no page (Prometheus 2.42).
        dashboard: The page to open.
        panel: The panel on it that shows the matter.
    """

    name: str
    severity: str
    wait: str
    expr: str
    summary: str
    description: str
    panel: str
    keep: str = ""
    dashboard: str = overview.UID


def _busy(window: str = SHORT) -> str:
    return f"engine:hitratio_prompt_tokens:rate{window} > {TRAFFIC_FLOOR}"


def _gap(sign: str) -> str:
    """A gap that is large, still there, beyond the error of the difference, on a busy engine with a fresh fit."""
    compare, edge = (">", "") if sign == "+" else ("<", "-")
    return f"""\
engine:hitratio_gap:ratio_rate{LONG} {compare} {edge}{GAP}
and on ({ENGINE}) engine:hitratio_gap:ratio_rate{SHORT} {compare} {edge}{GAP}
and on ({ENGINE}) (hitratio_gap_ratio {compare} {edge}{SIGMAS} * hitratio_gap_stderr)
and on ({ENGINE}) {_busy()}
and on ({ENGINE}) (time() - hitratio_last_fit_timestamp_seconds) < {STALE_SECONDS:.0f}"""


def alerts() -> list[Alert]:
    """All alerts, the most urgent first."""
    return [
        Alert(
            name="HitRatioBelowPrediction",
            severity="warning",
            wait="10m",
            keep="5m",
            # Where an ideal LRU would have lost most of these blocks too, the model is wrong, not the engine:
            # HitRatioModelWrong says so.
            expr=_gap("-") + f"\nunless on ({ENGINE}) (hitratio_engine_gap_ratio > -{GAP / 2})",
            summary=f"{_WHO} serves fewer blocks from its prefix cache than it should.",
            description=(
                "Over the last hour the observed hit ratio is {{ $value | humanizePercentage }} away from what an LRU"
                " cache of this capacity gives on the same prompts, beyond three standard errors, and it still is."
                " Prompts are computed again that could have been served. Look for cache resets, preemption, routing"
                " changes, cache salts and adapters."
            ),
            panel=overview.GAP_PANEL,
        ),
        Alert(
            name="HitRatioAbovePrediction",
            severity="info",
            wait="30m",
            keep="5m",
            expr=_gap("+"),
            summary=f"{_WHO} serves more blocks from its prefix cache than predicted.",
            description=(
                "Over the last hour the observed hit ratio is {{ $value | humanizePercentage }} above the prediction,"
                " beyond three standard errors. Users lose nothing; the prediction and the recommended capacity are"
                " not to be trusted until the cause is known."
            ),
            panel=overview.GAP_PANEL,
        ),
        Alert(
            name="HitRatioModelWrong",
            severity="info",
            wait="30m",
            expr=(
                f"abs(hitratio_model_gap_ratio) > {GAP}\n"
                f"and on ({ENGINE}) (abs(hitratio_model_gap_ratio) > {SIGMAS} * hitratio_model_gap_stderr)\n"
                f"and on ({ENGINE}) {_busy()}"
            ),
            summary=f"{_WHO} is predicted wrongly: its own ideal LRU cache says otherwise.",
            description=(
                "Predicted hit ratio and an ideal LRU cache on the same requests differ by"
                " {{ $value | humanizePercentage }}. The engine is not at fault: the traffic changes faster than the"
                " window follows, or it breaks an assumption of the model. Do not size the cache by it now."
            ),
            panel=overview.MODEL_PANEL,
        ),
        Alert(
            name="HitRatioPrefixCachingOff",
            severity="warning",
            wait="5m",
            expr=f'hitratio_degraded{{reason="{CACHING_OFF}"}} == 1',
            summary=f"{_WHO} runs without prefix caching.",
            description=(
                "Every prompt is computed from its first token. If that is meant, silence this alert for the target;"
                " otherwise start vLLM with --enable-prefix-caching."
            ),
            panel=overview.DEGRADED_PANEL,
        ),
        Alert(
            name="HitRatioMetricsAbsent",
            severity="warning",
            wait="10m",
            # It had the metrics within a day, or it is a vLLM whose neighbours of the same job have them.
            expr="""\
up == 1
unless on (job, instance) hitratio_build_info
and on (job, instance) (
  group by (job, instance) (last_over_time(hitratio_build_info[1d]))
  or group by (job, instance) (vllm:cache_config_info or vllm_cache_config_info)
)
and on (job) group by (job) (last_over_time(hitratio_build_info[1d]))""",
            summary="Target {{ $labels.instance }} of job {{ $labels.job }} answers without the plugin's metrics.",
            description=(
                "The target is up, but hitratio_* is missing, so every other alert is blind for it. It was started"
                " without --plugin hitratio, or the plugin switched itself off."
            ),
            panel=fleet.TABLE_PANEL,
            dashboard=fleet.UID,
        ),
        Alert(
            name="HitRatioModelStale",
            severity="warning",
            wait="10m",
            expr=(f"(time() - hitratio_last_fit_timestamp_seconds) > {STALE_SECONDS:.0f}\nand on ({ENGINE}) {_busy()}"),
            summary=f"{_WHO} has traffic, but its prediction is old.",
            description=(
                "The last fit was {{ $value | humanizeDuration }} ago. Prediction, gap and recommendation stand still,"
                " and the gap alerts are muted. The service thread of the plugin hangs or has given up."
            ),
            panel=overview.AGE_PANEL,
        ),
        Alert(
            name="HitRatioDegraded",
            severity="warning",
            wait="15m",
            expr=f'hitratio_degraded{{reason!~"{CACHING_OFF}|{NOT_MODELLED}"}} == 1',
            summary=f"{_WHO} measures only in part: {{{{ $labels.reason }}}}.",
            description=(
                "The plugin reports itself as degraded ({{ $labels.reason }}). vLLM serves as before; figures that"
                " depend on the part are absent or incomplete."
            ),
            panel=overview.DEGRADED_PANEL,
        ),
        Alert(
            name="HitRatioCounterMismatch",
            severity="info",
            wait="15m",
            # Prometheus 2 stores vLLM's names without the colon where prometheus_client is 0.23 or newer.
            expr=f"""\
abs(
  sum by ({ENGINE}) (rate(hitratio_hit_tokens_total[15m]))
  / (
    sum by ({ENGINE}) (rate(vllm:prefix_cache_hits_total[15m]) or rate(vllm_prefix_cache_hits_total[15m])) > 0
  )
  - 1
) > {COUNTER_MISMATCH}
and on ({ENGINE}) {_busy()}""",
            summary=f"{_WHO}: the plugin's hit counter and vLLM's own disagree.",
            description=(
                "Over 15 minutes they differ by {{ $value | humanizePercentage }}. vLLM up to 0.26 counts a waiting"
                " request at every lookup; from 0.27 on, the two are equal, and a difference means lost records."
            ),
            panel=overview.COUNTER_PANEL,
        ),
        Alert(
            name="HitRatioCacheReset",
            severity="info",
            wait="0s",
            expr="round(increase(hitratio_cache_resets_total[15m])) > 0",
            summary=f"{_WHO} dropped its prefix cache.",
            description=(
                "{{ $value | humanize }} resets within 15 minutes. The hit ratio dips until conversations have come"
                " back. Expected after a weight update or a benchmark; otherwise find out who calls"
                " /reset_prefix_cache."
            ),
            panel=overview.RATIO_PANEL,
        ),
        Alert(
            name="HitRatioCapacityBelowRecommended",
            severity="info",
            wait="6h",
            # Looking back a while keeps one failed scrape from starting the six hours again.
            expr=(
                "last_over_time(hitratio_recommended_capacity_blocks[15m])"
                f"\n  > {CAPACITY_FACTOR} * last_over_time(hitratio_capacity_blocks[15m])"
                f"\nand on ({ENGINE}) {_busy(LONG)}"
            ),
            summary=f"{_WHO} has less KV cache than its target hit ratio needs.",
            description=(
                "For six hours {{ $value | humanize }} blocks would have been needed to reach the target. Give the"
                " engine more KV cache, lower the target, or spread the traffic."
            ),
            panel=overview.CURVE_PANEL,
        ),
        Alert(
            name="HitRatioTargetUnreachable",
            severity="info",
            wait="2h",
            expr=f"last_over_time(hitratio_target_reachable[15m]) == 0\nand on ({ENGINE}) {_busy(LONG)}",
            summary=f"{_WHO} cannot reach its target hit ratio with any capacity.",
            description=(
                "The target lies above the share of blocks that were ever seen before. More memory will not help:"
                " prompts share too little, or too few users come back. Lower the target or change the prompts."
            ),
            panel=overview.RATIO_PANEL,
        ),
    ]


def inlined(expr: str) -> str:
    """The same condition on the exported metrics alone."""
    queries = {rule.name: rule.expr for rule in recordings()}
    return re.sub(r"\b(?:engine|model_name|fleet):hitratio_\w+:\w+", lambda match: f"({queries[match[0]]})", expr)

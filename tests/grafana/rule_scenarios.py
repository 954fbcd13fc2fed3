"""The stories that ``grafana/prometheus/rules_test.yml`` tells promtool, minute by minute.

``python -m tests.grafana.rule_scenarios`` writes the file; the tests check that it is up to date. A story
says what an engine does; whatever it does not mention is healthy. Each story is checked against every alert: an alert
that is not expected must not fire.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.grafana.grafana_queries import ALERTS, GRAFANA
from tools.dashboards.yaml_text import documents

FILE = GRAFANA / "prometheus" / "rules_test.yml"

TARGET = {"job": "vllm", "instance": "10.0.0.1:8000"}
ENGINE = {"engine": "0", "model_name": "qwen3-8b", **TARGET}
NEIGHBOUR = "10.0.0.2:8000"
BLOCKS = 6000
"""Prompt blocks per minute of an engine with traffic."""

Course = Callable[[int], float | None]


def always(value: float | None) -> Course:
    return lambda minute: value


@dataclass(frozen=True)
class Story:
    """What one engine does; functions of the minute.

    `divergence`, `engine_divergence`, `model_divergence` None: the plugin exports no value. `alive` False: the target
    does not answer, and its series become stale. After `restarts` its counters begin again.
    """

    minutes: int = 180
    traffic: Course = lambda minute: BLOCKS
    observed: Course = lambda minute: 0.30
    predicted: Course = lambda minute: 0.302
    divergence: Course = lambda minute: -0.002
    divergence_stderr: Course = lambda minute: 0.005
    engine_divergence: Course = lambda minute: -0.002
    model_divergence: Course = lambda minute: 0.001
    model_divergence_stderr: Course = lambda minute: 0.004
    fit_age: Course = lambda minute: 5
    recommended: Course = lambda minute: 2000
    reachable: Course = lambda minute: 1
    resets: Course = lambda minute: 0
    vllm_counts: Course = lambda minute: 1.0
    plugin: Callable[[int], bool] = lambda minute: True
    degraded: dict[str, Course] = field(default_factory=dict)
    alive: Callable[[int], bool] = lambda minute: True
    restarts: tuple[int, ...] = ()
    plugin_restarts: tuple[int, ...] = ()
    born: int = 0
    neighbour: bool = False
    """Another vLLM of the same job, without the plugin."""


def series(story: Story) -> dict[str, list[float | str | None]]:
    """Samples by series; None: not there, "stale": gone with this scrape."""
    found: dict[str, list[float | str | None]] = {}
    counters: dict[str, float] = {}
    for minute in range(story.minutes + 1):
        samples: dict[str, float | None] = {}
        if minute >= story.born:
            if minute in story.restarts:
                counters = {}
            if minute in story.plugin_restarts:
                counters = {key: value for key, value in counters.items() if key.startswith("vllm")}
            samples[_name("up", **TARGET)] = float(story.alive(minute))
            if story.alive(minute):
                samples.update(_page(story, minute, counters))
        for key in {*found, *samples}:
            values = found.setdefault(key, [None] * minute)
            value = samples.get(key)
            gone = value is None and values and isinstance(values[-1], float)
            values.append("stale" if gone else value)
    # A target of another job, one of the same job that is no vLLM, and a vLLM of a job without the plugin: none of them
    # is reported as missing.
    plain = {"job": "plain", "instance": "10.0.1.1:8000"}
    others = [_name("up", job="node", instance="10.0.0.1:9100"), _name("up", job="vllm", instance="10.0.0.8:8080")]
    others += [_name("up", **plain), _name("vllm_cache_config_info", engine="0", **plain)]
    if story.neighbour:
        target = {"job": "vllm", "instance": NEIGHBOUR}
        others += [_name("up", **target), _name("vllm_cache_config_info", engine="0", **target)]
    found.update({name: [1.0] * (story.minutes + 1) for name in others})
    return found


def _page(story: Story, minute: int, counters: dict[str, float]) -> dict[str, float | None]:
    blocks = story.traffic(minute) or 0.0
    hits = blocks * (story.observed(minute) or 0.0)
    expected = blocks * (story.predicted(minute) or 0.0)
    resets = story.resets(minute) or 0.0
    flows = {
        _name("vllm_prefix_cache_hits_total", **ENGINE): hits * 128 * (story.vllm_counts(minute) or 0.0),
        _name("hitratio_prompt_blocks_total", **ENGINE): blocks,
        _name("hitratio_prompt_tokens_total", **ENGINE): blocks * 124,
        _name("hitratio_hit_blocks_total", **ENGINE): hits,
        _name("hitratio_hit_tokens_total", **ENGINE): hits * 128,
        _name("hitratio_external_hit_tokens_total", **ENGINE): blocks * 12.4,
        _name("hitratio_predicted_hit_blocks_total", estimator="reuse_time", **ENGINE): expected,
        _name("hitratio_predicted_hit_blocks_total", estimator="mean_field", **ENGINE): expected * 0.9,
        _name("hitratio_curve_hit_blocks_total", capacity_blocks="4096", **ENGINE): blocks * 0.5,
        _name("hitratio_curve_hit_blocks_total", capacity_blocks="+Inf", **ENGINE): blocks * 0.6,
        _name("hitratio_cache_resets_total", **ENGINE): resets,
    }
    for key, amount in flows.items():
        counters[key] = counters.get(key, -amount) + amount
    gauges: dict[str, float | None] = {
        "hitratio_divergence_ratio": story.divergence(minute),
        "hitratio_divergence_ratio_stderr": _if(story.divergence(minute), story.divergence_stderr(minute)),
        "hitratio_engine_divergence_ratio": story.engine_divergence(minute),
        "hitratio_model_divergence_ratio": story.model_divergence(minute),
        "hitratio_model_divergence_ratio_stderr": _if(
            story.model_divergence(minute), story.model_divergence_stderr(minute)
        ),
        "hitratio_last_fit_timestamp_seconds": None
        if story.fit_age(minute) is None
        else minute * 60 - (story.fit_age(minute) or 0),
        "hitratio_capacity_blocks": 2275,
        "hitratio_recommended_capacity_blocks": story.recommended(minute),
        "hitratio_target_reachable": story.reachable(minute),
    }
    page: dict[str, float | None] = {_name(name, **ENGINE): value for name, value in gauges.items()}
    page[_name("vllm_cache_config_info", **{**TARGET, "engine": "0"})] = 1
    for reason in ("prefix_caching_off", "not_modelled", "fit"):
        page[_name("hitratio_degraded", reason=reason, **ENGINE)] = story.degraded.get(reason, always(0))(minute)
    page[_name("hitratio_build_info", version="0.1.0", **ENGINE)] = 1
    page.update(counters)
    if not story.plugin(minute):
        page = {key: value for key, value in page.items() if not key.startswith("hitratio")}
    return {key: None if value is None else float(value) for key, value in page.items()}


def _if(there: float | None, value: float | None) -> float | None:
    return None if there is None else value


def _name(name: str, **labels: str) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"


@dataclass(frozen=True)
class Fires:
    """An alert expected at a minute: its value as the description spells it, and its labels besides the engine's."""

    minute: int
    alert: str
    value: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    target_only: bool = False


@dataclass(frozen=True)
class Case:
    """A story, the minutes at which all alerts are checked, and those that fire then."""

    name: str
    story: Story
    minutes: tuple[int, ...]
    fires: tuple[Fires, ...] = ()


def _from(start: int, then: float | None, before: float | None = 0.0, until: int = 10**6) -> Course:
    return lambda minute: then if start <= minute < until else before


def _lossy(**more: Any) -> Story:
    """From minute 60 to 120 the engine serves 10 % of the blocks instead of the 30 % it should."""
    return Story(
        **{
            "observed": _from(61, 0.10, 0.30, until=121),
            "divergence": _from(65, -0.2, -0.002, until=125),
            "engine_divergence": _from(65, -0.2, -0.002, until=125),
            **more,
        }
    )


def _lucky(**more: Any) -> Story:
    """From minute 60 to 140 the engine serves 50 % of the blocks where 30 % are predicted."""
    return Story(
        **{
            "observed": _from(61, 0.5, 0.3, until=141),
            "divergence": _from(65, 0.2, -0.002, until=145),
            "engine_divergence": _from(65, 0.2, -0.002, until=145),
            **more,
        }
    )


CASES = [
    # Nothing fires.
    Case("healthy", Story(minutes=480), (1, 10, 60, 479)),
    Case(
        "idle from the start",
        Story(
            minutes=200,
            traffic=always(0),
            divergence=always(None),
            engine_divergence=always(None),
            model_divergence=always(None),
            recommended=always(None),
            reachable=always(None),
        ),
        (5, 60, 199),
    ),
    Case(
        "goes idle",
        Story(minutes=200, traffic=_from(0, BLOCKS, 0, until=60), divergence=_from(0, -0.002, None, until=70)),
        (60, 62, 66, 70, 119, 125, 199),
    ),
    Case(
        "a trickle below the traffic floor, and the engine loses blocks",
        Story(traffic=always(30), observed=always(0), divergence=always(-0.3), engine_divergence=always(-0.3)),
        (30, 90, 179),
    ),
    Case(
        "a trickle, and everything else looks wrong",
        Story(
            minutes=430,
            traffic=always(30),
            observed=always(0.9),
            divergence=always(0.6),
            model_divergence=always(0.6),
            vllm_counts=always(0.5),
            recommended=always(4500),
            reachable=always(0),
        ),
        (30, 90, 179, 429),
    ),
    Case(
        "a trickle, and the fits stop",
        Story(minutes=90, traffic=always(30), fit_age=lambda minute: 60 * minute),
        (60, 89),
    ),
    Case(
        "cold start: nothing to hit, then no estimate yet, then as predicted",
        Story(
            born=10,
            observed=_from(22, 0.3, 0.0),
            predicted=_from(22, 0.302, 0.0),
            divergence=_from(20, -0.002, None),
            engine_divergence=_from(20, -0.002, None),
            model_divergence=_from(20, 0.001, None),
            fit_age=_from(11, 5, None),
            recommended=_from(20, 2000, None),
            reachable=_from(20, 1, None),
        ),
        (10, 11, 15, 21, 25, 30, 60, 120, 179),
    ),
    Case(
        "counter reset: the plugin starts its estimate from scratch",
        Story(plugin_restarts=(100,)),
        (100, 101, 104, 110, 179),
    ),
    Case(
        "replica restart: away for three minutes, then an empty cache",
        Story(
            alive=lambda minute: not 100 <= minute < 103,
            restarts=(103,),
            observed=lambda minute: 0.05 if 103 <= minute < 110 else 0.3,
            predicted=lambda minute: 0.05 if 103 <= minute < 110 else 0.302,
            divergence=lambda minute: None if 103 <= minute < 113 else -0.002,
            engine_divergence=lambda minute: None if 103 <= minute < 113 else -0.002,
            fit_age=lambda minute: None if minute == 103 else 5,
        ),
        (99, 101, 103, 104, 107, 113, 120, 179),
    ),
    Case(
        "stale scrape: the target does not answer for eight minutes, and continues counting",
        Story(alive=lambda minute: not 100 <= minute < 108),
        (99, 100, 104, 107, 108, 110, 114, 179),
    ),
    Case(
        "a divergence under the threshold",
        Story(observed=always(0.27), divergence=always(-0.032), engine_divergence=always(-0.03)),
        (60, 120, 179),
    ),
    Case("a divergence within three standard errors", _lossy(divergence_stderr=always(0.08)), (80, 110, 119, 179)),
    Case("observed above, within three standard errors", _lucky(divergence_stderr=always(0.08)), (100, 120, 139)),
    Case(
        "observed above, and the fits have stopped",
        _lucky(fit_age=lambda minute: 5 if minute < 95 else 1000),
        (100,),
        (Fires(110, "HitRatioModelStale", "16m 40s"),),
    ),
    Case(
        "a model error within three standard errors",
        Story(model_divergence=always(0.06), model_divergence_stderr=always(0.03)),
        (60, 120, 179),
    ),
    Case("a KV cache that is not modelled", Story(minutes=60, degraded={"not_modelled": always(1)}), (30, 59)),
    Case("a divergence of a few minutes", _lossy(observed=_from(61, 0.1, 0.3, until=68)), (70, 80, 119)),
    Case(
        "a divergence that is over, although the engine's window still holds it",
        _lossy(divergence=_from(65, -0.2, -0.002, until=170), engine_divergence=_from(65, -0.2, -0.002, until=170)),
        (130, 150, 169),
        (Fires(118, "HitRatioBelowPrediction", "-19.53%"),),
    ),
    # Each alert fires, alone, and ends.
    Case(
        "the engine loses blocks",
        _lossy(),
        (60, 70, 80, 130, 179),
        (
            Fires(100, "HitRatioBelowPrediction", "-13.53%"),
            Fires(118, "HitRatioBelowPrediction", "-19.53%"),
        ),
    ),
    Case(
        "the engine loses blocks, without a shadow cache",
        _lossy(engine_divergence=always(None), model_divergence=always(None)),
        (60, 70, 80, 130, 179),
        (Fires(100, "HitRatioBelowPrediction", "-13.53%"),),
    ),
    Case(
        "observed is below the prediction, and so is an ideal LRU: the model is wrong",
        _lossy(engine_divergence=always(-0.002), model_divergence=_from(65, 0.2, 0.001, until=125)),
        (60, 80, 90, 130, 179),
        (Fires(100, "HitRatioModelWrong", "20%"),),
    ),
    Case(
        "observed is above the prediction; the alert ends before the engine's window has forgotten it",
        _lucky(divergence=_from(65, 0.2, -0.002, until=175)),
        (60, 80, 100, 155, 170),
        (Fires(110, "HitRatioAbovePrediction", "16.47%"),),
    ),
    Case(
        "prefix caching is off",
        Story(
            traffic=always(0),
            degraded={"prefix_caching_off": _from(30, 1, until=60)},
            divergence=always(None),
            engine_divergence=always(None),
            model_divergence=always(None),
            fit_age=always(None),
            recommended=always(None),
            reachable=always(None),
        ),
        (29, 33, 66),
        (Fires(40, "HitRatioPrefixCachingOff", labels={"reason": "prefix_caching_off"}),),
    ),
    Case(
        "the plugin's metrics go away",
        Story(plugin=lambda minute: not 60 <= minute < 120),
        (59, 65, 69, 122, 179),
        (Fires(80, "HitRatioMetricsAbsent", target_only=True), Fires(118, "HitRatioMetricsAbsent", target_only=True)),
    ),
    Case(
        "another replica is started without the plugin",
        Story(neighbour=True),
        (1, 9),
        (Fires(20, "HitRatioMetricsAbsent", target_only=True, labels={"instance": NEIGHBOUR}),),
    ),
    Case(
        "the fits stop; a divergence from an old fit is not blamed on the engine",
        _lossy(fit_age=lambda minute: 5 + 60 * max(minute - 61, 0)),
        (60, 70, 80),
        (Fires(90, "HitRatioModelStale", "29m 5s"), Fires(110, "HitRatioModelStale", "49m 5s")),
    ),
    Case(
        "a part of the plugin fails",
        Story(degraded={"fit": _from(30, 1, until=60)}),
        (29, 40, 66),
        (Fires(50, "HitRatioDegraded", labels={"reason": "fit"}),),
    ),
    Case(
        "vLLM counts half as many hits",
        Story(vllm_counts=_from(60, 0.5, 1.0, until=120)),
        (59, 61, 70, 150),
        (Fires(100, "HitRatioCounterMismatch", "100%"),),
    ),
    Case(
        "the cache is reset: hits and prediction fall together, no divergence",
        Story(
            resets=lambda minute: 1.0 if minute == 60 else 0.0,
            observed=_from(60, 0.05, 0.3, until=66),
            predicted=_from(60, 0.05, 0.302, until=66),
        ),
        (59, 80, 120),
        (Fires(62, "HitRatioCacheReset", "1"), Fires(70, "HitRatioCacheReset", "1")),
    ),
    Case(
        "the cache is too small for the target",
        Story(minutes=460, recommended=_from(60, 4500, 2000, until=440)),
        (59, 100, 300, 418, 459),
        (Fires(430, "HitRatioCapacityBelowRecommended", "4.5k"),),
    ),
    Case(
        "one failed scrape does not restart the six hours",
        Story(minutes=430, recommended=_from(60, 4500, 2000), alive=lambda minute: minute not in (200, 201)),
        (100, 300, 418),
        (Fires(430, "HitRatioCapacityBelowRecommended", "4.5k"),),
    ),
    Case(
        "no capacity reaches the target",
        Story(minutes=240, recommended=always(None), reachable=_from(60, 0, 1, until=200)),
        (59, 100, 178, 220),
        (Fires(190, "HitRatioTargetUnreachable"),),
    ),
]


def rules_test() -> str:
    """Content of the file."""
    return documents(
        "Generated by tests/grafana/rule_scenarios.py; do not edit. Run: promtool test rules rules_test.yml",
        {
            "rule_files": ["rules.yml"],
            "evaluation_interval": "1m",
            "group_eval_order": ["hitratio.recording", "hitratio.alerts"],
            "tests": [_test(case) for case in CASES],
        },
    )


def _test(case: Case) -> dict[str, Any]:
    expected = {(fires.minute, fires.alert): fires for fires in case.fires}
    minutes = sorted({*case.minutes, *(fires.minute for fires in case.fires)})
    looks = [
        {
            "eval_time": f"{minute}m",
            "alertname": name,
            **({"exp_alerts": [_alert(expected[minute, name])]} if (minute, name) in expected else {}),
        }
        for minute in minutes
        for name in (alert["alert"] for alert in ALERTS)
    ]
    return {
        "name": case.name,
        "interval": "1m",
        "input_series": [
            {"series": name, "values": _notation(values)} for name, values in sorted(series(case.story).items())
        ],
        "alert_rule_test": looks,
        **({"promql_expr_test": _RECORDED} if case.name == "healthy" else {}),
    }


# What the recording rules give for a healthy engine.
_RECORDED = [
    {"expr": expr, "eval_time": "120m", "exp_samples": [{"labels": labels, "value": value}]}
    for expr, labels, value in (
        ("round(engine:hitratio_observed:ratio_rate5m, 0.0001)", _name("", **ENGINE), 0.3),
        (
            "round(engine:hitratio_divergence:ratio_rate1h, 0.0001)",
            _name("", **ENGINE),
            -0.002,
        ),
        # 0.3 · 128 / 124 hit, and a tenth was loaded.
        (
            "round(model_name:hitratio_served:ratio_rate1h, 0.0001)",
            _name("", model_name="qwen3-8b"),
            0.4097,
        ),
        (
            "round(model_name:hitratio_predicted:ratio_rate1h, 0.0001)",
            _name("", model_name="qwen3-8b"),
            0.302,
        ),
        ("fleet:hitratio_prompt_tokens:rate5m", _name("fleet:hitratio_prompt_tokens:rate5m"), 12400),
        ("round(fleet:hitratio_infinite_cache:ratio_rate1h, 0.0001)", "{}", 0.6),
        (
            "round(model_name:hitratio_curve:ratio_rate1h, 0.0001)",
            _name("", model_name="qwen3-8b", capacity_blocks="4096"),
            0.5,
        ),
        (
            "round(model_name:hitratio_divergence_stderr:quadrature, 0.0001)",
            _name("", model_name="qwen3-8b"),
            0.005,
        ),
    )
]


def _alert(fires: Fires) -> dict[str, Any]:
    [rule] = [rule for rule in ALERTS if rule["alert"] == fires.alert]
    labels = {**(TARGET if fires.target_only else ENGINE), **fires.labels}

    def fill(template: str) -> str:
        template = re.sub(r"{{ \$labels\.(\w+) }}", lambda match: labels[match[1]], template)
        return re.sub(r"{{ \$value \| \w+ }}", fires.value or "VALUE MISSING", template)

    return {
        "exp_labels": {**labels, **rule["labels"]},
        "exp_annotations": {name: fill(text) for name, text in rule["annotations"].items()},
    }


def _notation(values: list[float | str | None]) -> str:
    """Promtool's short form of a list of samples."""
    parts: list[str] = []
    index = 0
    while index < len(values):
        value = values[index]
        end = index + 1
        if isinstance(value, float):
            step = None
            while end < len(values) and isinstance(values[end], float):
                difference = round(float(values[end]) - float(values[end - 1]), 6)  # type: ignore[arg-type]
                if step is not None and difference != step:
                    break
                step, end = difference, end + 1
            if end - index == 1:
                parts.append(f"{value:.10g}")
            else:
                parts.append(f"{value:.10g}{step:+.10g}x{end - index - 1}")
        else:
            while end < len(values) and values[end] is None and value is None:
                end += 1
            parts.append("stale" if value == "stale" else (f"_x{end - index}" if end - index > 1 else "_"))
        index = end
    return " ".join(parts)


if __name__ == "__main__":
    FILE.write_text(rules_test(), encoding="utf-8")
    sys.exit(0)

"""Grafana's dashboard-linter, its rules that apply, as tests; and the house rules beyond it."""

import re
from typing import Any

import pytest

from tests.grafana.grafana_queries import ALERTS, PAGES, Json, expressions, panels
from tools.dashboards.metrics import metrics_in

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

#: Where a rule of dashboard-linter is not followed, and why.
EXCEPTIONS = {
    "target-rate-interval": (
        "Ratios are taken over $window, which the reader chooses: a ratio needs several hundred requests, not four"
        " scrapes. Plain rates use $__rate_interval."
    ),
}

UNITS = {
    "percentunit", "bytes", "s", "dthms", "short", "locale", "cps", "count:tok/s",
}  # fmt: skip

PANELS = [(page, panel) for page in PAGES for panel in panels(page)]
each_panel = pytest.mark.parametrize(
    ("page", "panel"), PANELS, ids=[f"{page['uid']}-{panel['title']}" for page, panel in PANELS]
)
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


def variables(page: Json) -> dict[str, Json]:
    return {each["name"]: each for each in page["templating"]["list"]}


def defaults(panel: Json) -> Json:
    return dict(panel.get("fieldConfig", {}).get("defaults", {}))


def overrides(panel: Json) -> list[tuple[str, str, Any]]:
    """(name of the series or column, property, value)."""
    return [
        (each["matcher"]["options"], one["id"], one["value"])
        for each in panel.get("fieldConfig", {}).get("overrides", ())
        for one in each["properties"]
    ]


def test_data_source_variable(page: Json) -> None:
    variable = variables(page)["datasource"]
    assert variable["type"] == "datasource"
    assert variable["query"] == "prometheus"
    assert variable["label"] == "Data source"
    assert variable["refresh"] == 1, "when the dashboard is opened"
    assert "__inputs" not in page


@pytest.mark.parametrize("name", ["job", "model_name", "instance", "engine"])
def test_chained_variables(page: Json, name: str) -> None:
    variable = variables(page)[name]
    assert variable["datasource"] == DATA_SOURCE
    assert variable["multi"]
    assert variable["includeAll"]
    assert variable["allValue"] == ".+"
    assert variable["refresh"] == 2, "on a change of the time range"
    assert variable["sort"] == 1
    order = ["job", "model_name", "instance", "engine"]
    for before in order[: order.index(name)]:
        assert f'{before}=~"${before}"' in variable["query"]["query"]


def test_window(page: Json) -> None:
    window = variables(page)["window"]
    assert window["refresh"] == 2, "auto follows the time range"
    assert window["current"]["value"] == "$__auto_interval_window"
    assert [option["text"] for option in window["options"]] == ["auto", *window["query"].split(",")]


def test_variables_are_vllms(page: Json) -> None:
    assert list(variables(page)) == ["datasource", "job", "model_name", "instance", "engine", "window", "filters"]


def test_identity(page: Json) -> None:
    assert re.fullmatch(r"hitratio-[a-z]+", page["uid"])
    assert page["id"] is None
    assert page["title"].startswith("vLLM / Hit ratio")
    assert page["tags"] == ["vllm", "hitratio"]
    assert page["links"][0]["includeVars"]
    assert page["links"][0]["keepTime"]
    assert page["schemaVersion"] == 39, "what Grafana 10.4 loads"
    assert page["editable"] is False
    assert page["graphTooltip"] == 1
    assert page["refresh"] == "30s"
    assert page["time"]["from"] == "now-1h"


def test_top_down(page: Json) -> None:
    first = [panel for panel in page["panels"] if panel["gridPos"]["y"] == 0]
    assert [panel["type"] for panel in first] == ["stat"] * 6
    assert sum(panel["gridPos"]["w"] for panel in first) == 24
    assert page["panels"][6]["type"] == "row"


def test_events(page: Json) -> None:
    alerts, resets = page["annotations"]["list"][1:]
    for event in (alerts, resets):
        assert event["datasource"] == DATA_SOURCE
        assert event["enable"]
        assert event["textFormat"]
    assert "ALERTS" in alerts["expr"]
    assert "hitratio_cache_resets_total" in resets["expr"]


@each_panel
def test_panel(page: Json, panel: Json) -> None:
    assert panel["datasource"] == DATA_SOURCE
    assert panel["title"]
    assert "\n\nGood: " in panel["description"], "what good looks like"
    assert panel["description"].rsplit("\n\n", 1)[1].startswith("Metrics: `")
    assert panel["targets"]
    refs = [target["refId"] for target in panel["targets"]]
    assert len(set(refs)) == len(refs)
    for target in panel["targets"]:
        assert target["datasource"] == DATA_SOURCE


@each_panel
def test_metrics_of_the_description(page: Json, panel: Json) -> None:
    named = set(re.findall(r"`([^`]+)`", panel["description"].rsplit("\n\n", 1)[1]))
    assert named == {name for expr in expressions(panel) for name in metrics_in(expr)}


@each_panel
def test_units(page: Json, panel: Json) -> None:
    units = [defaults(panel).get("unit"), *(value for _, path, value in overrides(panel) if path == "unit")]
    given = [unit for unit in units if unit]
    assert all(unit in UNITS for unit in given)
    if panel["type"] not in ("table", "heatmap"):
        assert given, "a panel of numbers has a unit"


@each_panel
def test_queries_carry_all_matchers(page: Json, panel: Json) -> None:
    for expr in expressions(panel):
        selectors = [expr.split(name, 1)[1].split("}")[0] for name in metrics_in(expr)]
        assert selectors
        for selector in selectors:
            for name in ("job", "model_name", "instance", "engine"):
                assert f'{name}=~"${name}"' in selector


@each_panel
def test_counters_are_rated(page: Json, panel: Json) -> None:
    for expr in expressions(panel):
        for match in re.finditer(r"(\w+)\((\w+_(?:total|bucket))\{", expr):
            assert match[1] in ("rate", "increase"), match[0]
        bare = re.findall(r"[\w:]+_(?:total|bucket)\b", expr)
        rated = re.findall(r"(?:rate|increase)\([\w:]+_(?:total|bucket)\{[^}]*\}\[\$\w+\]\)", expr)
        assert len(bare) == len(rated), "counters only within rate or increase, over a variable window"
        assert "rate(sum" not in expr
        assert not re.search(r"\bavg\b.*_ratio", expr), "no mean of ratios"


@each_panel
def test_division_is_guarded(page: Json, panel: Json) -> None:
    for expr in expressions(panel):
        for denominator in re.findall(r" / (?:on \(\) group_left \(\) )?(\w+|\()", expr):
            assert denominator in ("(", "hitratio_capacity_blocks"), "a sum that is > 0, or what never is 0"


@each_panel
def test_no_data_says_so(page: Json, panel: Json) -> None:
    if panel["type"] != "heatmap":
        assert defaults(panel).get("noValue")


def test_observed_and_predicted_look_the_same_everywhere() -> None:
    colors: dict[str, set[str]] = {}
    for _, panel in PANELS:
        for name, path, value in overrides(panel):
            if name.lower() in ("observed", "predicted") and path == "color":
                colors.setdefault(name.lower(), set()).add(value["fixedColor"])
        if panel["title"] in ("Observed", "Predicted"):
            colors.setdefault(panel["title"].lower(), set()).add(defaults(panel)["color"]["fixedColor"])
    assert colors == {"observed": {"blue"}, "predicted": {"orange"}}


@each_alert
def test_alert_is_actionable(alert: Json) -> None:
    assert re.fullmatch(r"HitRatio[A-Z]\w+", alert["alert"])
    assert alert["labels"]["severity"] in ("warning", "info")
    assert re.fullmatch(r"\d+[smh]", alert["for"])
    summary, description = alert["annotations"]["summary"], alert["annotations"]["description"]
    assert summary.endswith(".")
    assert "{{ $labels.instance }}" in summary, "names the engine"
    assert len(description) > 60
    if "humanizePercentage" in description:
        assert "ratio" in alert["expr"] or "rate(" in alert["expr"]


def test_divergence_alerts_have_all_guards() -> None:
    guarded = [alert for alert in ALERTS if alert["alert"] in ("HitRatioBelowPrediction", "HitRatioAbovePrediction")]
    assert len(guarded) == 2
    guards = ("ratio_rate1h", "ratio_rate5m", "hitratio_divergence_ratio_stderr", "prompt_tokens:rate5m", "last_fit")
    for alert in guarded:
        for guard in guards:
            assert guard in alert["expr"]
        assert alert["keep_firing_for"], "one noisy window must not end a page"

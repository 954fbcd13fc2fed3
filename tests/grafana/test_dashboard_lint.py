"""Grafana's dashboard-linter, its rules that apply, as tests; and the house rules beyond it."""

import re

import pytest
from grafana_queries import PAGES

from vllm_hitratio_plugin.dashboards.alerts import Alert, alerts
from vllm_hitratio_plugin.dashboards.dashboard import Dashboard
from vllm_hitratio_plugin.dashboards.panel import DATA_SOURCE, Panel
from vllm_hitratio_plugin.dashboards.promql import metrics_in

#: Where a rule of dashboard-linter is not followed, and why.
EXCEPTIONS = {
    "target-rate-interval": (
        "Ratios are taken over $window, which a person chooses: some hundred requests make a ratio, not four scrapes."
        " Plain rates use $__rate_interval."
    ),
}

UNITS = {
    "percentunit", "bytes", "s", "dthms", "short", "locale", "cps", "count:tok/s",
}  # fmt: skip

PANELS = [(page, panel) for page in PAGES for panel in page.panels()]
each_panel = pytest.mark.parametrize(("page", "panel"), PANELS, ids=[f"{a.uid}-{b.title}" for a, b in PANELS])
each_alert = pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)


def variables(page: Dashboard) -> dict[str, dict]:
    return {each["name"]: each for each in page.json()["templating"]["list"]}


def test_data_source_variable(page: Dashboard) -> None:
    variable = variables(page)["datasource"]
    assert variable["type"] == "datasource"
    assert variable["query"] == "prometheus"
    assert variable["label"] == "Data source"
    assert "__inputs" not in page.json()


@pytest.mark.parametrize("name", ["job", "model_name", "instance", "engine"])
def test_chained_variables(page: Dashboard, name: str) -> None:
    variable = variables(page)[name]
    assert variable["datasource"] == DATA_SOURCE
    assert variable["multi"]
    assert variable["includeAll"]
    assert variable["allValue"] == ".+"
    assert variable["refresh"] == 2, "on a change of the time range"
    assert variable["sort"] == 1
    order = ["job", "model_name", "instance", "engine"]
    for before in order[: order.index(name)]:
        assert f'{before}=~"${before}"' in variable["definition"]


def test_variables_are_vllms(page: Dashboard) -> None:
    assert list(variables(page)) == ["datasource", "job", "model_name", "instance", "engine", "window", "filters"]


def test_identity(page: Dashboard) -> None:
    json = page.json()
    assert re.fullmatch(r"hitratio-[a-z]+", json["uid"])
    assert json["id"] is None
    assert json["title"].startswith("vLLM / Hit ratio")
    assert json["tags"] == ["vllm", "hitratio"]
    assert json["links"][0]["includeVars"]
    assert json["links"][0]["keepTime"]
    assert json["schemaVersion"] == 39, "what Grafana 10.4 loads"
    assert json["editable"] is False
    assert json["graphTooltip"] == 1
    assert json["refresh"] == "30s"
    assert json["time"]["from"] == "now-1h"


def test_top_down(page: Dashboard) -> None:
    panels = page.json()["panels"]
    first = [panel for panel in panels if panel["gridPos"]["y"] == 0]
    assert [panel["type"] for panel in first] == ["stat"] * 6
    assert sum(panel["gridPos"]["w"] for panel in first) == 24
    assert panels[6]["type"] == "row"


@each_panel
def test_panel(page: Dashboard, panel: Panel) -> None:
    json = panel.json(1, 0, 0, 8, 8)
    assert json["datasource"] == DATA_SOURCE
    assert panel.title
    assert "\n\nGood: " in panel.description, "what good looks like"
    assert json["description"].rsplit("\n\n", 1)[1].startswith("Metrics: `")
    assert panel.queries
    refs = [target["refId"] for target in json["targets"]]
    assert len(set(refs)) == len(refs)
    for target in json["targets"]:
        assert target["datasource"] == DATA_SOURCE


@each_panel
def test_units(page: Dashboard, panel: Panel) -> None:
    units = [panel.defaults.get("unit"), *(style.properties.get("unit") for style in panel.styles)]
    given = [unit for unit in units if unit]
    assert all(unit in UNITS for unit in given)
    if panel.kind not in ("table", "heatmap"):
        assert given, "a panel of numbers has a unit"


@each_panel
def test_queries_carry_all_matchers(page: Dashboard, panel: Panel) -> None:
    for query in panel.queries:
        selectors = [query.expr.split(name, 1)[1].split("}")[0] for name in metrics_in(query.expr)]
        assert selectors
        for selector in selectors:
            for name in ("job", "model_name", "instance", "engine"):
                assert f'{name}=~"${name}"' in selector


@each_panel
def test_counters_are_rated(page: Dashboard, panel: Panel) -> None:
    for query in panel.queries:
        for match in re.finditer(r"(\w+)\((\w+_(?:total|bucket))\{", query.expr):
            assert match[1] in ("rate", "increase"), match[0]
        bare = re.findall(r"[\w:]+_(?:total|bucket)\b", query.expr)
        rated = re.findall(r"(?:rate|increase)\([\w:]+_(?:total|bucket)\{[^}]*\}\[\$\w+\]\)", query.expr)
        assert len(bare) == len(rated), "counters only within rate or increase, over a variable window"
        assert "rate(sum" not in query.expr
        assert not re.search(r"\bavg\b.*_ratio", query.expr), "no mean of ratios"


@each_panel
def test_division_is_guarded(page: Dashboard, panel: Panel) -> None:
    for query in panel.queries:
        for denominator in re.findall(r" / (?:on \(\) group_left \(\) )?(\w+|\()", query.expr):
            assert denominator in ("(", "hitratio_capacity_blocks"), "a sum that is > 0, or what never is 0"


@each_panel
def test_no_data_says_so(page: Dashboard, panel: Panel) -> None:
    if panel.kind != "heatmap":
        assert panel.defaults.get("noValue")


def test_observed_and_predicted_look_the_same_everywhere() -> None:
    colors: dict[str, set[str]] = {}
    for _, panel in PANELS:
        for style in panel.styles:
            if style.name.lower() in ("observed", "predicted") and "color" in style.properties:
                colors.setdefault(style.name.lower(), set()).add(style.properties["color"]["fixedColor"])
        if panel.title in ("Observed", "Predicted"):
            colors.setdefault(panel.title.lower(), set()).add(panel.defaults["color"]["fixedColor"])
    assert colors == {"observed": {"blue"}, "predicted": {"orange"}}


@each_alert
def test_alert_is_actionable(alert: Alert) -> None:
    assert re.fullmatch(r"HitRatio[A-Z]\w+", alert.name)
    assert alert.severity in ("warning", "info")
    assert re.fullmatch(r"\d+[smh]", alert.wait)
    assert alert.summary.endswith(".")
    assert "{{ $labels.instance }}" in alert.summary, "names the engine"
    assert len(alert.description) > 60
    if "humanizePercentage" in alert.description:
        assert "ratio" in alert.expr or "rate(" in alert.expr


def test_gap_alerts_have_all_guards() -> None:
    for alert in alerts():
        if alert.name in ("HitRatioBelowPrediction", "HitRatioAbovePrediction"):
            for guard in ("ratio_rate1h", "ratio_rate5m", "hitratio_gap_stderr", "prompt_tokens:rate5m", "last_fit"):
                assert guard in alert.expr
            assert alert.keep, "one noisy window must not end a page"

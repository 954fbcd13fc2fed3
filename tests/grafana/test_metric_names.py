"""Every metric that is queried is exported, and every exported one is documented."""

import re
from collections.abc import Iterator

import pytest

from tests.grafana.grafana_queries import ALERTS, PAGES, RECORDED, ROOT, RUNBOOKS, panels, queries, runbook_queries
from tools.dashboards.metrics import EXPORTED, METRICS, OUTCOMES, metrics_in
from vllm_hitratio_plugin.snapshot import DEGRADATIONS

#: Labels beyond model_name and engine by which queries select or sum.
LABELS = {
    "hitratio_predicted_hit_blocks_total": {"estimator"},
    "hitratio_curve_hit_blocks_total": {"capacity_blocks"},
    "hitratio_shadow_curve_hit_blocks_total": {"capacity_blocks"},
    "hitratio_prompt_blocks_by_outcome_total": {"outcome", "reason"},
    "hitratio_drift_contribution_ratio": {"factor"},
    "hitratio_drift_significant": {"factor"},
    "hitratio_degraded": {"reason"},
    "hitratio_build_info": {"version", "vllm_version", "unhashed"},
}


def everything() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield from queries(page)
    yield from RECORDED.items()
    yield from ((alert["alert"], alert["expr"]) for alert in ALERTS)
    yield from runbook_queries()


def test_every_metric_queried_is_exported() -> None:
    for where, expr in everything():
        try:
            metrics_in(expr)
        except LookupError as error:
            pytest.fail(f"{where}: {error}")


def test_an_unknown_metric_is_found() -> None:
    with pytest.raises(LookupError, match="no metric is named hitratio_gap_ratio"):
        metrics_in("hitratio_gap_ratio > 3 * hitratio_divergence_ratio_stderr")


@pytest.mark.parametrize("name", ["hitratio_observed_ratio", "hitratio_hit_blocks_total"])
def test_names_carry_no_colon_and_no_vllm(name: str) -> None:
    assert name in EXPORTED
    assert not [each for each in EXPORTED if ":" in each or "vllm" in each]


def test_labels_queried_are_labels_exported() -> None:
    exported = {name: set(metric.labels) for metric in METRICS for name in (metric.name, f"{metric.name}_total")}
    assert {name: exported.get(name) for name in LABELS} == LABELS
    queried = {name for _, expr in everything() for name in metrics_in(expr)}
    assert set(LABELS) <= queried, "a metric of this list is not queried any more"


def test_outcomes_and_reasons_are_those_of_the_code() -> None:
    page = (RUNBOOKS / "HitRatioDegraded.md").read_text()
    assert [reason for reason in DEGRADATIONS if f"`{reason}`" not in page] == []
    alerted = {reason for alert in ALERTS for reason in re.findall(r'reason!?[=~]+"([\w|]+)"', alert["expr"])}
    assert {reason for each in alerted for reason in each.split("|")} <= set(DEGRADATIONS)
    [shown] = [panel for panel in panels(PAGES[0]) if panel["title"] == "Outcomes of prompt blocks"]
    assert sorted(target["legendFormat"] for target in shown["targets"]) == sorted(OUTCOMES)


def test_recorded_names_are_documented() -> None:
    text = (ROOT / "docs" / "observability.md").read_text()
    missing = {name for name in RECORDED if name not in text}
    assert not missing


def test_alerts_are_documented() -> None:
    text = (ROOT / "docs" / "observability.md").read_text()
    assert [alert["alert"] for alert in ALERTS if f"runbooks/{alert['alert']}.md" not in text] == []

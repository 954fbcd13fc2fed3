"""Every metric that is queried is exported, and every exported one is documented."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from grafana_queries import PAGES, queries
from vllm_hitratio_plugin.metrics.snapshot import DEGRADATIONS
from vllm_hitratio_plugin.workload.ledger import FATES

from vllm_hitratio_plugin.dashboards.alerts import CACHING_OFF, NOT_MODELLED, alerts
from vllm_hitratio_plugin.dashboards.fates import FATE_COLORS
from vllm_hitratio_plugin.dashboards.promql import metrics_in
from vllm_hitratio_plugin.dashboards.recording import recordings
from vllm_hitratio_plugin.metrics.families import FAMILIES

DOCS = Path(__file__).resolve().parents[2] / "docs"

#: Of vLLM itself, read by the comparison of counters and to know a vLLM from other targets.
VLLM = {f"vllm{sign}{name}" for sign in ":_" for name in ("prefix_cache_hits_total", "cache_config_info")}


def exported() -> set[str]:
    """Names as they are queried."""
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    return {family.name + suffix for family in FAMILIES for suffix in suffixes[family.kind]}


def everything() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield from queries(page)
    for rule in recordings():
        yield rule.name, rule.expr
    for alert in alerts():
        yield alert.name, alert.expr
    for path in DOCS.glob("runbooks/*.md"):
        for query in re.findall(r"```promql\n(.*?)```", path.read_text(), re.DOTALL):
            yield f"{path.name}", query


def test_every_metric_queried_is_exported() -> None:
    known = exported() | VLLM
    unknown = {(where, name) for where, expr in everything() for name in metrics_in(expr) if name not in known}
    assert not unknown


@pytest.mark.parametrize("name", ["hitratio_observed_ratio", "hitratio_hit_blocks_total"])
def test_names_carry_no_colon_and_no_vllm(name: str) -> None:
    assert name in exported()
    assert not [each for each in exported() if ":" in each or "vllm" in each]


def test_labels_queried_are_labels_exported() -> None:
    labels = {
        "hitratio_predicted_hit_blocks_total": "estimator",
        "hitratio_curve_hit_blocks_total": "capacity_blocks",
        "hitratio_shadow_curve_hit_blocks_total": "capacity_blocks",
        "hitratio_blocks_total": "fate",
        "hitratio_degraded": "reason",
    }
    for family in FAMILIES:
        for name in (family.name, f"{family.name}_total"):
            if name in labels:
                assert labels[name] in family.labels


def test_reasons_and_fates_are_those_of_the_code() -> None:
    assert {CACHING_OFF, NOT_MODELLED} <= set(DEGRADATIONS)
    page = (DOCS / "runbooks" / "HitRatioDegraded.md").read_text()
    assert [reason for reason in DEGRADATIONS if f"`{reason}`" not in page] == []
    assert sorted(FATE_COLORS) == sorted(FATES)


def test_recorded_names_are_documented() -> None:
    text = (DOCS / "observability.md").read_text()
    missing = {rule.name for rule in recordings() if rule.name not in text}
    assert not missing


def test_alerts_are_documented() -> None:
    text = (DOCS / "observability.md").read_text()
    assert [alert.name for alert in alerts() if f"runbooks/{alert.name}.md" not in text] == []

"""What findings cite exists, and docs/findings.md describes every rule."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_hitratio_plugin.findings.healthy import healthy
from vllm_hitratio_plugin.findings.routing_loss import fleet_routing_loss
from vllm_hitratio_plugin.findings.rules import RULES
from vllm_hitratio_plugin.findings.without_plugin import without_plugin
from vllm_hitratio_plugin.metrics.catalogue import METRICS
from vllm_hitratio_plugin.snapshot import DEGRADATIONS, OUTCOMES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "vllm_hitratio_plugin" / "findings"
PAGE = ROOT / "docs" / "findings.md"

LABELS = {name: set(metric.labels) for metric in METRICS for name in metric.sample_names}
LABELS |= {metric.name: set(metric.labels) for metric in METRICS if metric.kind == "histogram"}
VALUES = {
    "outcome": {outcome for outcome, _ in OUTCOMES},
    "reason": {*DEGRADATIONS, *(reason for _, reason in OUTCOMES)},
}

IDS = {function.__name__.replace("_", "-") for function in (*RULES, healthy, fleet_routing_loss, without_plugin)}


def texts(path: Path) -> Iterator[str]:
    """Every string of a module, docstrings included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def cited(path: Path) -> set[tuple[str, str]]:
    """Our metrics in its strings, with their selectors."""
    return {found for text in texts(path) for found in re.findall(r"\b(hitratio_[a-z_]+)(?:\{(.*?)\})?", text)}


def section_of(id_: str) -> str:
    """What the page says of a rule."""
    return re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1 + sorted(IDS).index(id_)]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_metric_that_a_finding_cites_is_in_the_catalogue(path: Path) -> None:
    for name, selector in cited(path):
        assert name in LABELS
        for label, value in re.findall(r'(\w+)="(\w+)"', selector):
            assert label in LABELS[name]
            assert value in VALUES[label]


def test_every_rule_cites_metrics() -> None:
    citing = {path.stem for path in FOLDER.glob("*.py") if cited(path)}
    vllms_own = {"without_plugin", "preemption"}
    assert {rule.__name__ for rule in RULES} <= citing | vllms_own


def test_a_rule_has_the_name_of_its_function() -> None:
    named = {
        keyword.value.value
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"
        for keyword in node.keywords
        if keyword.arg == "rule" and isinstance(keyword.value, ast.Constant)
    }
    assert named == IDS


def test_the_page_describes_every_rule_and_no_other() -> None:
    assert re.findall(r"^## `([a-z-]+)`$", PAGE.read_text(), re.MULTILINE) == sorted(IDS)


@pytest.mark.parametrize("id_", sorted(IDS))
def test_the_page_says_the_same_of_each_rule(id_: str) -> None:
    section = section_of(id_)
    for heading in ("**Severity:**", "**Fires**", "**Means:**", "**Refuted by:**", "**What to do:**"):
        assert section.count(heading) == 1, heading
    assert "**Refuted by:** nothing" not in section
    module = FOLDER / f"{id_.removeprefix('fleet-').replace('-', '_')}.py"
    severities = {text for text in texts(module) if text in ("critical", "warning", "info", "ok")}
    severity = section.split("**Severity:**", 1)[1].split("\n", 1)[0]
    assert set(re.findall(r"critical|warning|info|ok\b", severity)) == severities


def test_every_metric_on_the_page_is_in_the_catalogue() -> None:
    assert set(re.findall(r"\bhitratio_[a-z_]+", PAGE.read_text())) <= set(LABELS)


@pytest.mark.parametrize("id_", sorted(IDS))
def test_the_page_has_the_thresholds_of_each_rule(id_: str) -> None:
    section = section_of(id_)
    module = FOLDER / f"{id_.removeprefix('fleet-').replace('-', '_')}.py"
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Constant, ast.Tuple)):
            value = ast.literal_eval(node.value)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, (int, float)):
                    shown = f"{100 * number:g}" if isinstance(number, float) and number < 1 else f"{number:,g}"
                    assert re.search(rf"\b{re.escape(shown)}(?!\d| h)\b", section), shown

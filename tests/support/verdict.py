"""The findings of a snapshot, held against the snapshot itself, against each other, and against its page of metrics."""

import re
from dataclasses import replace

import pytest

from tests.support.example_snapshots import page
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.findings.rules import diagnose
from vllm_hitratio_plugin.metrics.reader import parse
from vllm_hitratio_plugin.snapshot import Snapshot

#: Rules that say the opposite of each other.
OPPOSITES = (
    {"healthy", "not-enough-data"},
    {"healthy", "capacity-bound"},
    {"not-enough-data", "model-off"},
    {"not-enough-data", "engine-deviates"},
    {"working-set-near-capacity", "capacity-bound"},
    {"working-set-near-capacity", "pinned-capacity"},
    {"prefix-caching-off", "second-tier"},
)


def verdict(snapshot: Snapshot) -> list[Finding]:
    """``diagnose``, with everything checked that must hold of all findings together."""
    found = diagnose(snapshot)
    rules = [finding.rule for finding in found]
    assert len(set(rules)) == len(rules)
    assert [finding.severity for finding in found].count("critical") <= 1
    for pair in OPPOSITES:
        if pair == {"healthy", "capacity-bound"} and any(
            finding.rule == "capacity-bound" and finding.severity == "info" for finding in found
        ):
            continue
        assert not pair <= set(rules), pair
    if "cold-workload" in rules:
        assert not any("Wait, or send traffic." in finding.actions for finding in found)
    for finding in found:
        _check_numbers(finding, snapshot)
    if snapshot.vllm is None:
        _check_page(found, snapshot)
    return found


def words(finding: Finding) -> str:
    """All sentences of a finding."""
    return " ".join((finding.summary, *finding.evidence, *finding.causes, *finding.actions))


def _check_numbers(finding: Finding, snapshot: Snapshot) -> None:
    said = words(finding)
    for number in re.findall(r"([\d.,]+) %", said):
        assert float(number.replace(",", "")) <= 100, said
    assert not re.search(r"\b(nan|inf)\b", said), said
    assert 0 < finding.confidence <= 1
    period, estimate = Period.of(snapshot), snapshot.estimate
    assert finding.loss is None or -1e-9 <= finding.loss <= 1
    if not finding.loss or estimate is None or estimate.observed is None or estimate.ceiling is None:
        return
    if finding.rule not in ("traffic-changed", "preemption"):
        assert finding.loss <= 1 - period.share("hit") + 1e-6, finding
    if finding.rule in ("capacity-bound", "pinned-capacity", "engine-deviates"):
        most = max(estimate.ceiling - estimate.observed, 0.0)
        assert finding.loss <= most + 1e-6, finding
    for number in re.findall(r"costs ([\d.]+) points", finding.summary):
        assert float(number) <= 100 * (estimate.ceiling - estimate.observed) + 0.051, finding
    if "second tier in host memory" in said:
        assert not period.share("hit", "external")
    if "in the last" not in said and "since the start" in said.lower():
        # Totals are told of a young engine, or next to the window's figures.
        assert snapshot.earlier is None or finding.rule in ("working-set-near-capacity", "cold-workload"), said


def _check_page(found: list[Finding], snapshot: Snapshot) -> None:
    """vLLM's /metrics shows the same verdict as the exporter's whole snapshot."""
    (read,) = parse(page(snapshot), now=snapshot.wall_time).snapshots
    shown = diagnose(replace(read, version=snapshot.version))
    assert [finding.rule for finding in shown] == [finding.rule for finding in found]
    for here, there in zip(found, shown, strict=True):
        assert (here.severity, here.confidence) == (there.severity, there.confidence)
        assert (here.loss is None) == (there.loss is None)
        assert here.loss is None or here.loss == pytest.approx(there.loss, abs=1e-9)
        # The words of a degradation, and requests that skip the cache from the start on, are not on a page.
        skipped = snapshot.counters is not None and snapshot.counters.uncounted > snapshot.counters.resumed
        if here.rule not in ("plugin-degraded", "not-modelled") and not skipped:
            assert (here.summary, here.evidence, here.actions) == (there.summary, there.evidence, there.actions)

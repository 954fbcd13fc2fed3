"""Rules one by one: what makes each fire, what does not, and how findings are ranked."""

import time
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random

import pytest

from tests.support.virtual_engine import VirtualEngine, chain, text
from vllm_hitratio_plugin.findings.curve import capacity_surviving, knee, ratio_at
from vllm_hitratio_plugin.findings.finding import SEVERITIES, Finding, ranked
from vllm_hitratio_plugin.findings.rules import RULES, diagnose
from vllm_hitratio_plugin.findings.traffic import Traffic, difference
from vllm_hitratio_plugin.findings.without_plugin import without_plugin
from vllm_hitratio_plugin.findings.wording import capacity, count, duration, percent
from vllm_hitratio_plugin.snapshot import Counters, Snapshot, VllmCounters


def chats(loss: float = 0.0, **facts: object) -> Snapshot:
    """100 conversations of growing prompts, all resident; of each hit, a share is lost for no reason."""
    engine = VirtualEngine(16, 100_000)
    rng = Random(2)
    for turn in range(1, 6):
        for number in range(100):
            tokens = 320 * turn + 5
            reusable = 20 * (turn - 1)
            hit = 0 if rng.random() < loss else reusable
            engine.tell(turn * 100 + number, tokens, chain(text(number, tokens), 16), 16 * hit)
    return engine.snapshot(**facts)


@pytest.fixture(scope="module")
def healthy() -> Snapshot:
    return chats()


def names(snapshot: Snapshot) -> list[str]:
    return [finding.rule for finding in diagnose(snapshot)]


def found(snapshot: Snapshot, rule: str) -> Finding:
    return next(finding for finding in diagnose(snapshot) if finding.rule == rule)


def everything(finding: Finding) -> str:
    return " ".join((finding.summary, *finding.evidence))


def test_healthy_traffic_is_called_healthy_with_its_numbers(healthy: Snapshot) -> None:
    assert names(healthy) == ["healthy"]
    # Prompts of 21, 41, ..., 101 blocks, of which 0, 20, ..., 80 are history.
    ratio = 200 / 305
    assert f"Observed {percent(ratio)}" in everything(found(healthy, "healthy"))
    assert f"at most possible {percent(ratio)}" in everything(found(healthy, "healthy"))


@pytest.mark.parametrize(("loss", "severity"), [(0.08, "warning"), (0.5, "critical")])
def test_an_engine_that_loses_what_an_lru_keeps(loss: float, severity: str) -> None:
    snapshot = chats(loss)
    finding = diagnose(snapshot)[0]
    gap = -snapshot.estimate.engine_divergence
    missing = snapshot.counters.shadow_hit_blocks - snapshot.counters.hit_blocks
    assert gap == pytest.approx(missing / snapshot.counters.prompt_blocks)
    assert (finding.rule, finding.severity) == ("engine-deviates", severity)
    assert f"{100 * gap:.1f} points less" in finding.summary
    assert f"{missing:,.0f} prompt blocks" in everything(finding)


def test_a_gap_within_its_noise_is_no_deviation(healthy: Snapshot) -> None:
    noisy = replace(healthy.estimate, engine_divergence=-0.05, engine_divergence_stderr=0.02)
    assert "engine-deviates" not in names(replace(healthy, estimate=noisy))
    sure = replace(noisy, engine_divergence_stderr=0.01)
    assert "engine-deviates" in names(replace(healthy, estimate=sure))


def test_a_model_that_is_off_does_not_blame_the_engine(healthy: Snapshot) -> None:
    off = replace(healthy.estimate, model_divergence=0.08, model_divergence_stderr=0.004)
    rules = names(replace(healthy, estimate=off))
    assert rules[0] == "model-off"
    assert "engine-deviates" not in rules
    assert "8.0 points too high" in found(replace(healthy, estimate=off), "model-off").summary


def test_old_figures_are_called_old(healthy: Snapshot) -> None:
    assert "stale" not in names(replace(healthy, fit_time=time.time() - 600))
    assert names(replace(healthy, fit_time=time.time() - 7200))[0] == "stale"
    assert "healthy" not in names(replace(healthy, fit_time=time.time() - 7200))


def test_more_hits_than_were_ever_seen_are_a_contradiction(healthy: Snapshot) -> None:
    assert "metric-inconsistent" in names(
        replace(healthy, estimate=replace(healthy.estimate, observed=0.75, observed_stderr=0.01))
    )


@pytest.mark.parametrize("reason", ["prefix_caching_off", "not_modelled", "hook"])
def test_what_is_wrong_with_the_plugin_comes_first_or_is_said(reason: str, healthy: Snapshot) -> None:
    expected = {"prefix_caching_off": "prefix-caching-off", "not_modelled": "not-modelled", "hook": "plugin-degraded"}
    snapshot = replace(healthy, degraded={reason: "in these words"}, modelled=reason != "not_modelled")
    if reason == "prefix_caching_off":
        snapshot = replace(snapshot, counters=None, estimate=None)
    assert names(snapshot)[0] == expected[reason]
    if reason != "prefix_caching_off":
        assert "in these words" in everything(diagnose(snapshot)[0])
    assert "healthy" not in names(snapshot) or reason == "none"


def test_a_cache_that_is_not_modelled_gets_no_prediction(healthy: Snapshot) -> None:
    snapshot = replace(healthy, modelled=False, degraded={"not_modelled": "two groups"})
    assert names(snapshot) == ["not-modelled"]


def test_too_little_traffic_is_said_with_its_counts() -> None:
    engine = VirtualEngine(16, 1000)
    for number in range(30):
        engine.prompt(number, text(number % 3, 800))
    finding = found(engine.snapshot(), "not-enough-data")
    assert "30 prompts and 27 runs of reusable blocks in the last 29 s" in everything(finding)
    assert "not-enough-data" in names(VirtualEngine(16, 1000).snapshot(estimate=None, counters=None))


def test_blocks_in_use_are_missed_where_history_was_evicted() -> None:
    engine = VirtualEngine(16, 1000)
    held = text("held", 16 * 600)
    engine.pool.admit("held", len(held), chain(held, 16))
    for number in range(1200):
        engine.prompt(number, text(number % 25, 320) + text(("new", number), 5))
    snapshot = engine.snapshot()
    assert snapshot.estimate.in_use_blocks == pytest.approx(600, abs=1)
    finding = found(snapshot, "pinned-capacity")
    assert "600 blocks" in everything(finding)
    assert "60 % of 1,000 blocks" in everything(finding)
    assert "pinned-capacity" not in names(replace(snapshot, estimate=replace(snapshot.estimate, in_use_blocks=100.0)))


def test_repeated_resets_are_a_warning_a_single_old_one_is_nothing(healthy: Snapshot) -> None:
    before = replace(healthy.counters, resets=0)
    many = replace(healthy, counters=replace(healthy.counters, resets=4), earlier=before, earlier_seconds=600.0)
    assert (diagnose(many)[0].rule, diagnose(many)[0].severity) == ("cache-reset", "warning")
    old = replace(many, earlier=many.counters)
    assert "cache-reset" not in names(old)


def test_rates_come_from_the_counters_a_window_ago(healthy: Snapshot) -> None:
    half = Counters(requests=300, prompt_blocks=9000, short_prompts=7, fork_depths={2: 5})
    now = replace(healthy.counters, short_prompts=9, fork_depths={2: 6, 3: 1})
    traffic = Traffic.of(replace(healthy, counters=now, earlier=half, earlier_seconds=600.0))
    assert (traffic.counters.requests, traffic.counters.short_prompts) == (200, 2)
    assert traffic.counters.fork_depths == {2: 1, 3: 1}
    assert traffic.since == "in the last 10 min"
    previous = replace(healthy, counters=half, wall_time=healthy.wall_time - 60)
    assert Traffic.of(healthy, previous).since == "in the last 60 s"
    assert Traffic.of(healthy).since == "since the start"
    # A monitor that started anew counts from there.
    anew = replace(healthy, earlier=replace(healthy.counters, requests=10_000))
    assert Traffic.of(anew).counters == healthy.counters


def test_differences_cover_every_counter(healthy: Snapshot) -> None:
    assert difference(healthy.counters, healthy.counters).requests == 0
    assert difference(healthy.counters, Counters()) == healthy.counters
    assert [item.name for item in fields(Counters)] == [
        item.name for item in fields(difference(Counters(), Counters()))
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_rule_fails_on_what_was_not_measured(rule: Callable[..., object], healthy: Snapshot) -> None:
    empty = replace(
        healthy.estimate,
        observed=None,
        predicted=dict.fromkeys(healthy.estimate.predicted),
        ceiling=None,
        in_use_blocks=None,
        curve={},
        ledger=[],
        ready=False,
    )
    for snapshot in (
        VirtualEngine(16, 10).snapshot(counters=None, estimate=None, index_blocks=None),
        VirtualEngine(16, 10).snapshot(),
        replace(healthy, estimate=empty),
        replace(healthy, estimate=None),
    ):
        if rule.__name__ != "not_enough_data":
            assert rule(snapshot, Traffic.of(snapshot)) is None


def test_worst_first_then_what_costs_most() -> None:
    def finding(rule: str, severity: str, loss: float | None = None, confidence: float = 1.0) -> Finding:
        return Finding(rule, severity, confidence, "", loss=loss)  # type: ignore[arg-type]

    given = [
        finding("e", "ok"),
        finding("d", "info", 0.9),
        finding("b", "warning", 0.5, 0.5),
        finding("a", "warning", 0.4),
        finding("c", "warning"),
        finding("first", "critical"),
    ]
    assert [each.rule for each in ranked(given)] == ["first", "a", "b", "c", "d", "e"]
    assert set(SEVERITIES) == {each.severity for each in given}


def test_without_the_plugin_a_ratio_has_no_cause_and_off_is_off() -> None:
    before = VllmCounters("m", "0", caching=True, queries=1000.0, hits=800.0)
    now = replace(before, queries=2000.0, hits=900.0, preemptions=3.0)
    assert "45 % of 2,000 prompt tokens were served from the cache since the start" in everything(without_plugin(now))
    assert "10 % of 1,000 prompt tokens were served from the cache since the last look" in everything(
        without_plugin(now, before)
    )
    assert "3 preemptions" in everything(without_plugin(now))
    assert without_plugin(replace(now, caching=False)).rule == "prefix-caching-off"
    unknown = everything(without_plugin(VllmCounters("m", "0")))
    assert "Prefix caching is on" not in unknown
    assert "0 %" not in unknown


def test_reading_the_curve() -> None:
    curve = {100: 0.1, 200: 0.3, 400: 0.4, 800: 0.41}
    assert ratio_at(curve, 150) == pytest.approx(0.2)
    assert ratio_at(curve, 801) is None
    assert knee(curve) == 400
    assert knee({}) is None
    assert capacity_surviving({100: 10.0, 200: 30.0, 400: None}, 20.0) == pytest.approx(150)
    assert capacity_surviving({100: 10.0, 200: 30.0, 400: None}, 300.0) == 400
    assert capacity_surviving({100: 10.0, 200: 30.0}, 300.0) is None


def test_numbers_in_words() -> None:
    assert [percent(value) for value in (0.0, 0.0004, 0.143, 0.75, 0.99999, 1.0)] == [
        "0 %",
        "0.04 %",
        "14.3 %",
        "75 %",
        "100.00 %",
        "100 %",
    ]
    assert [duration(value) for value in (2.345, 84.0, 600.0, 9000.0, 1e6)] == [
        "2.3 s",
        "84 s",
        "10 min",
        "2.5 h",
        "11.6 days",
    ]
    assert [count(1, "block"), count(2275, "block")] == ["1 block", "2,275 blocks"]
    assert capacity(2275, 18 << 20) == "2,275 blocks (40.0 GiB a worker)"
    assert capacity(300, 1 << 14) == "300 blocks (4.7 MiB a worker)"
    assert capacity(300, None) == "300 blocks"


def test_a_change_of_the_traffic_is_told_with_its_parts(healthy: Snapshot) -> None:
    moved = {"arrival_rate": -0.08, "size": 0.01, "gaps": -0.02, "ceiling": 0.0, "pinned": 0.0}
    changed = replace(healthy, estimate=replace(healthy.estimate, drift=moved, drifted=["arrival_rate"]))
    finding = found(changed, "traffic-changed")
    assert "fell by 9.0 points since the window before" in finding.summary
    assert "the rate of new conversations changed" in finding.summary
    assert "-8.0 points from the rate of new conversations, -2.0 points from the pauses" in everything(finding)
    unmoved = replace(healthy, estimate=replace(healthy.estimate, drift=moved, drifted=[]))
    assert "traffic-changed" not in names(unmoved)

"""Rules one by one: what makes each fire, what does not, and how findings are ranked."""

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.support.example_snapshots import page
from tests.support.verdict import verdict
from tests.support.virtual_engine import VirtualEngine, chain, present, text
from vllm_hitratio_plugin.findings.by_capacity import capacity_surviving, knee_of, ratio_at
from vllm_hitratio_plugin.findings.finding import SEVERITIES, Finding, ranked
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.findings.rules import RULES
from vllm_hitratio_plugin.findings.without_plugin import without_plugin
from vllm_hitratio_plugin.metrics.reader import parse
from vllm_hitratio_plugin.model.drift import FACTORS
from vllm_hitratio_plugin.planning.capacity_curve import CapacityCurve
from vllm_hitratio_plugin.planning.subject import live_subject
from vllm_hitratio_plugin.snapshot import OUTCOMES, Counters, Snapshot, VllmCounters
from vllm_hitratio_plugin.wording import percent


def chats(loss: float = 0.0, **facts: Any) -> Snapshot:
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
    return [finding.rule for finding in verdict(snapshot)]


def found(snapshot: Snapshot, rule: str) -> Finding:
    return next(finding for finding in verdict(snapshot) if finding.rule == rule)


def everything(finding: Finding) -> str:
    return " ".join((finding.summary, *finding.evidence))


def test_healthy_traffic_is_called_healthy_with_its_numbers(healthy: Snapshot) -> None:
    assert names(healthy) == ["healthy"]
    # Prompts of 21, 41, ..., 101 blocks, of which 0, 20, ..., 80 are history.
    ratio = 200 / 305
    assert f"Observed {percent(ratio)}" in everything(found(healthy, "healthy"))
    assert f"ceiling {percent(ratio)}" in everything(found(healthy, "healthy"))


@pytest.mark.parametrize(("loss", "severity"), [(0.08, "warning"), (0.5, "critical")])
def test_an_engine_that_loses_what_an_lru_keeps(loss: float, severity: str) -> None:
    snapshot = chats(loss)
    finding = verdict(snapshot)[0]
    divergence = -present(snapshot.estimate.engine_divergence)
    missing = snapshot.counters.shadow_hit_blocks - snapshot.counters.hit_blocks
    assert divergence == pytest.approx(missing / snapshot.counters.prompt_blocks)
    assert (finding.rule, finding.severity) == ("engine-deviates", severity)
    assert f"{100 * divergence:.1f} points less" in finding.summary
    assert f"{missing:,.0f} prompt blocks" in everything(finding)


def test_a_divergence_within_its_noise_is_no_finding(healthy: Snapshot) -> None:
    noisy = replace(healthy.estimate, observed=0.6, engine_divergence=-0.05, engine_divergence_stderr=0.02)
    assert "engine-deviates" not in names(replace(healthy, estimate=noisy))
    certain = replace(noisy, engine_divergence_stderr=0.01)
    assert "engine-deviates" in names(replace(healthy, estimate=certain))


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
def test_a_degradation_has_a_finding_that_comes_first(reason: str, healthy: Snapshot) -> None:
    expected = {"prefix_caching_off": "prefix-caching-off", "not_modelled": "not-modelled", "hook": "plugin-degraded"}
    snapshot = replace(healthy, degraded={reason: "in these words"}, modelled=reason != "not_modelled")
    if reason == "prefix_caching_off":
        snapshot = replace(snapshot, counters=None, estimate=None)
    assert names(snapshot)[0] == expected[reason]
    if reason != "prefix_caching_off":
        assert "in these words" in everything(verdict(snapshot)[0])
    assert "healthy" not in names(snapshot)


def test_a_cache_that_is_not_modelled_gets_no_prediction(healthy: Snapshot) -> None:
    snapshot = replace(healthy, modelled=False, degraded={"not_modelled": "two groups"})
    assert names(snapshot) == ["not-modelled"]


def test_too_little_traffic_comes_with_its_counts() -> None:
    engine = VirtualEngine(16, 1000)
    for number in range(30):
        engine.prompt(number, text(number % 3, 800))
    finding = found(engine.snapshot(), "not-enough-data")
    assert "30 requests and 27 runs of reused blocks in the last 29 s" in everything(finding)
    assert "not-enough-data" in names(VirtualEngine(16, 1000).snapshot(estimate=None, counters=None))


def test_blocks_in_use_are_missed_where_history_was_evicted() -> None:
    engine = VirtualEngine(16, 1000)
    running = text("running", 16 * 600)
    engine.pool.admit("running", len(running), chain(running, 16))
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
    assert (verdict(many)[0].rule, verdict(many)[0].severity) == ("cache-reset", "warning")
    old = replace(many, earlier=many.counters)
    assert "cache-reset" not in names(old)


def test_rates_come_from_the_counters_a_window_ago(healthy: Snapshot) -> None:
    half = Counters(requests=300, prompt_blocks=9000, short_prompts=7, fork_depths={2: 5})
    now = replace(healthy.counters, short_prompts=9, fork_depths={2: 6, 3: 1})
    period = Period.of(replace(healthy, counters=now, earlier=half, earlier_seconds=600.0))
    assert (period.counters.requests, period.counters.short_prompts) == (200, 2)
    assert period.counters.fork_depths == {2: 1, 3: 1}
    assert period.since == "in the last 10 min"
    assert Period.of(healthy).since == "since the start"
    # A monitor that started again counts from there.
    restarted = replace(healthy, earlier=replace(healthy.counters, requests=10_000))
    assert Period.of(restarted).counters == healthy.counters
    # Totals that the window no longer holds do not describe the present.
    old = replace(healthy, estimate=replace(healthy.estimate, requests=healthy.estimate.requests - 1))
    assert Period.of(old).counters == Counters()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_rule_fails_on_what_was_not_measured(rule: Callable[..., object], healthy: Snapshot) -> None:
    empty = replace(
        healthy.estimate,
        observed=None,
        predicted=dict.fromkeys(healthy.estimate.predicted),
        ceiling=None,
        in_use_blocks=None,
        curve={},
        outcomes=[],
        ready=False,
    )
    for snapshot in (
        VirtualEngine(16, 10).snapshot(counters=None, estimate=None, index_blocks=None),
        VirtualEngine(16, 10).snapshot(),
        replace(healthy, estimate=empty),
        replace(healthy, estimate=None),
    ):
        if rule.__name__ != "not_enough_data":
            assert rule(snapshot, Period.of(snapshot)) is None


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


@pytest.mark.parametrize(
    ("curve", "ceiling", "in_use", "knee"),
    [
        ({100: 0.1, 200: 0.3, 400: 0.4, 800: 0.41}, 0.41, 0, 400),
        ({100: 0.1, 200: 0.3, 400: 0.4, 800: 0.41}, 0.41, 300, 800),
        # Beyond nearly all of the ceiling, a late return does not move the knee.
        ({100: 0.1, 200: 0.3, 400: 0.408, 80_000: 0.41}, 0.41, 0, 200),
        # A cliff: nothing until all of it fits.
        ({100: 0.0, 200: 0.0, 400: 0.05, 800: 0.4}, 0.4, 0, 800),
        ({100: 0.3, 200: 0.3}, 0.3, 0, None),
        ({}, 0.3, 0, None),
    ],
)
def test_the_knee_of_a_curve(curve: dict[int, float], ceiling: float, in_use: float, knee: float | None) -> None:
    assert knee_of(curve, ceiling, in_use) == knee


@pytest.mark.parametrize("capacity_blocks", [1000, 3000])
def test_doctor_and_plan_have_one_knee(capacity_blocks: int) -> None:
    engine = VirtualEngine(16, capacity_blocks, window_seconds=3000)
    rng = Random(1)
    for number in range(3000):
        engine.prompt(number, text(int(400 * rng.random() ** 3), 320) + text(("question", number), 5))
    snapshot = replace(engine.snapshot(), sums=engine.monitor.sums)
    estimate = snapshot.estimate
    planned = CapacityCurve(live_subject(snapshot).demand).knee
    # A snapshot has the curve at a few capacities only.
    nearest = min(estimate.curve, key=lambda size: abs(size - planned))
    assert knee_of(estimate.curve, present(estimate.ceiling), present(estimate.in_use_blocks)) == nearest
    assert (f"Give the cache {nearest:,} blocks" in " ".join(found(snapshot, "capacity-bound").actions)) == (
        nearest > capacity_blocks
    )


def test_reading_the_curve() -> None:
    curve = {100: 0.1, 200: 0.3, 400: 0.4, 800: 0.41}
    assert ratio_at(curve, 150) == pytest.approx(0.2)
    assert ratio_at(curve, 801) is None
    assert capacity_surviving({100: 10.0, 200: 30.0, 400: None}, 20.0) == pytest.approx(150)
    assert capacity_surviving({100: 10.0, 200: 30.0, 400: None}, 300.0) == 400
    assert capacity_surviving({100: 10.0, 200: 30.0}, 300.0) is None


def test_a_change_of_the_traffic_comes_with_its_contributions(healthy: Snapshot) -> None:
    parts = dict(zip(FACTORS, (-0.08, 0.01, -0.02, 0.0, 0.0), strict=True))
    estimate = replace(healthy.estimate, drift_contributions=parts, drift_significant=["conversation_size", FACTORS[0]])
    changed = replace(healthy, estimate=estimate)
    finding = found(changed, "traffic-changed")
    assert "fell by 9.0 points since the window before" in finding.summary
    assert "mainly because of the arrival rate of conversations" in finding.summary
    assert "-8.0 points from the arrival rate of conversations, -2.0 points from the reuse times" in everything(finding)
    unmoved = replace(healthy, estimate=replace(estimate, drift_significant=[]))
    assert "traffic-changed" not in names(unmoved)


def test_hits_refute_a_block_that_is_too_large() -> None:
    engine = VirtualEngine(4096, 100)
    engine.tell(0, 4000, [], 0)
    assert "block-too-large" in names(engine.snapshot(max_model_len=4096))
    engine.tell(1, 4000, [], 3200)
    assert "block-too-large" not in names(engine.snapshot(max_model_len=4096))


def documents(capacity: int) -> Snapshot:
    engine = VirtualEngine(16, capacity)
    rng = Random(3)
    for number in range(600):
        engine.prompt(number, text(rng.randrange(50), 320) + text(("question", number), 5))
    return engine.snapshot()


def test_a_loss_never_exceeds_the_ceiling_minus_the_observed_ratio() -> None:
    snapshot = documents(300)
    estimate = snapshot.estimate
    ceiling = present(estimate.ceiling)
    assert present(found(snapshot, "capacity-bound").loss) <= ceiling - present(estimate.observed)
    recovered = replace(estimate, observed=ceiling - 0.001, outcomes=[])
    assert "capacity-bound" not in names(replace(snapshot, estimate=recovered))


def test_totals_since_the_start_are_not_told_of_an_idle_engine() -> None:
    busy = documents(300)
    idle = replace(busy, estimate=VirtualEngine(16, 300).snapshot().estimate)
    assert "capacity-bound" in names(replace(busy, estimate=replace(busy.estimate, outcomes=[])))
    assert names(idle) == ["not-enough-data"]


def test_a_second_tier_that_serves_is_not_advised_again() -> None:
    snapshot = documents(300)
    plain = found(snapshot, "capacity-bound")
    assert any("add a second tier" in action for action in plain.actions)
    estimate, evicted = snapshot.estimate, OUTCOMES.index(("capacity", "evicted"))
    outcomes = list(estimate.outcomes)
    outcomes[OUTCOMES.index(("hit", "external"))] = loaded = outcomes[evicted] // 2
    outcomes[evicted] -= loaded
    tiered = found(replace(snapshot, estimate=replace(estimate, outcomes=outcomes)), "capacity-bound")
    assert present(tiered.loss) < 0.6 * present(plain.loss)
    assert "that no second tier serves" in tiered.summary
    assert f"A second tier served another {percent(loaded / sum(outcomes))} of the prompt blocks" in everything(tiered)
    assert not any("add a second tier" in action for action in tiered.actions)


def test_few_long_reuses_are_no_lack_of_traffic() -> None:
    engine = VirtualEngine(16, 10_000)
    for number in range(300):
        engine.prompt(number, text(number if number % 10 else "again", 320))
    finding = found(engine.snapshot(), "not-enough-data")
    assert "too little reuse" in finding.summary
    assert "300 requests and 29 runs" in everything(finding)
    assert "Wait, or send traffic." not in finding.actions


def test_case_25_requests_that_skip_the_cache_by_design() -> None:
    engine = VirtualEngine(16, 1000)
    for number in range(400):
        engine.tell(number, 320, chain(text(number, 320), 16), 0, counted=False, skipped=True)
    snapshot = engine.snapshot()
    # The same from the exporter's snapshot and from a page of metrics.
    for seen in (snapshot, parse(page(snapshot), snapshot.wall_time).snapshots[0]):
        (finding,) = verdict(seen)
        assert (finding.rule, finding.severity) == ("requests-skip-cache", "info")
        assert "400 requests of 400 since the start (100 %) skipped the lookup" in finding.summary
        assert "prompt_logprobs" in finding.causes[0]
        assert "idle" not in everything(finding)
    # Among others that are counted, a few are not worth a word.
    for number in range(20):
        engine.prompt(400 + number, text(number, 320))
    assert "400 requests of 420" in found(engine.snapshot(), "requests-skip-cache").summary
    assert "too little traffic" in found(engine.snapshot(), "not-enough-data").summary
    for number in range(8000):
        engine.prompt(420 + number, text(number % 40, 320))
    assert "requests-skip-cache" not in [each.rule for each in verdict(engine.snapshot())]


def test_a_share_of_the_cache_is_claimed_only_where_it_is_known() -> None:
    engine = VirtualEngine(16, 400)
    for number in range(100):
        history = text(("history", number), 1600)
        later = chain(history[:800] + text(("other", number), 800), 16)
        engine.tell(2 * number, 1600, chain(history, 16), 0, conversation=str(number))
        engine.tell(2 * number + 1, 1600, later, 800, conversation=str(number))
    snapshot = engine.snapshot()
    assert "They occupy" not in everything(found(snapshot, "template-rewrites-history"))
    recent = replace(snapshot, earlier=Counters(), earlier_seconds=200.0)
    assert "They occupy" in everything(found(recent, "template-rewrites-history"))


@pytest.mark.parametrize(
    ("blocks", "total", "severity"), [(530, 1000, "warning"), (30, 1000, "info"), (19, 1000, None), (15, 100, None)]
)
def test_what_another_request_computes_is_told(
    blocks: int, total: int, severity: str | None, healthy: Snapshot
) -> None:
    outcomes = dict.fromkeys(OUTCOMES, 0)
    outcomes["in_flight", "prefill"], outcomes["compulsory", "new"] = blocks, total - blocks
    estimate = replace(healthy.estimate, observed=0.0, outcomes=list(outcomes.values()))
    snapshot = replace(healthy, estimate=estimate)
    if severity is None:
        assert "in-flight" not in names(snapshot)
        return
    finding = found(snapshot, "in-flight")
    assert (finding.severity, finding.loss) == (severity, blocks / total)
    assert finding.summary.startswith(
        f"{100 * blocks / total:.1f} points of the prompts were being computed by another"
    )


def test_a_prefiller_that_serves_everything_is_no_loss(healthy: Snapshot) -> None:
    counters = replace(healthy.counters, hit_tokens=0, external_hit_tokens=healthy.counters.prompt_tokens + 7)
    finding = found(replace(healthy, counters=counters), "second-tier")
    assert "100 % of the prompt tokens are served: 0 % by the local cache, 100 %" in finding.summary
    assert "second-tier" not in names(replace(healthy, counters=replace(counters, external_hit_tokens=3)))


def test_what_vllm_says_of_a_connector() -> None:
    page = VllmCounters("m", "0", queries=1000.0, hits=100.0, external_queries=900.0, external_hits=0.0)
    assert "was asked for 900 tokens since the start and loaded 0" in everything(without_plugin(page))
    # Over 100 % is no sum.
    twice = everything(without_plugin(replace(page, external_hits=950.0)))
    assert "no sum is given" in twice
    before = replace(page, queries=500.0, hits=50.0, external_hits=100.0)
    later = everything(without_plugin(replace(page, external_hits=350.0), before))
    assert "Another 50 % were loaded through a KV connector (a second tier or a prefiller): 60 % together" in later
    assert "Looked for and not found: vllm:prefix_cache_queries_total" in everything(
        without_plugin(VllmCounters("m", "0"))
    )

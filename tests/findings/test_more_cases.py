"""Cases 19, 26, 29, 31 and 34 of what people reported: the right number, and the right first finding."""

from random import Random

import pytest

from tests.support.example_snapshots import page
from tests.support.verdict import verdict, words
from tests.support.virtual_engine import VirtualEngine, chain, present, text
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.without_plugin import without_plugin
from vllm_hitratio_plugin.metrics.reader import parse
from vllm_hitratio_plugin.snapshot import OUTCOMES, Snapshot
from vllm_hitratio_plugin.wording import percent


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


def stored(keep: int = 8) -> VirtualEngine:
    """60 conversations in turn, 8 turns, behind the cache a store that has the first ``keep`` turns of each."""
    block, engine = 32, VirtualEngine(32, 1002, window_seconds=600)
    for turn in range(1, 9):
        for client in range(60):
            known = 32 * ((300 + 100 * min(turn - 1, keep)) // block) if turn > 1 else 0
            tokens = text(client, 300 + 100 * turn)
            ids = chain(tokens, block)
            hit = present(engine.pool.admit((turn, client), len(tokens), ids)) * block
            engine.pool.release((turn, client))
            engine.tell(60 * turn + client, len(tokens), ids, hit, external_tokens=max(known - hit, 0))
    return engine


def test_case_19_what_a_tier_serves_is_not_lost() -> None:
    snapshot = stored().snapshot()
    counters = present(snapshot.counters)
    assert (counters.hit_tokens, counters.external_hit_tokens, counters.prompt_tokens) == (40_640, 247_360, 360_000)
    findings = verdict(snapshot)
    found = findings[0]
    assert found.rule == "second-tier"
    assert found.summary == (
        "80 % of the prompt tokens are served: 11.3 % by the local cache, 68.7 % by the tier behind its KV connector. "
        "The tier is there and works."
    )
    assert "capacity-bound" not in rules(findings)
    assert not any("second tier in host memory" in words(finding) for finding in findings)
    # The blocks say the same: nothing was lost to eviction.
    outcomes = dict(zip(OUTCOMES, counters.outcomes, strict=True))
    assert sum(outcomes.values()) == counters.prompt_blocks
    assert outcomes["hit", "local"] * 32 == counters.hit_tokens
    assert outcomes["hit", "external"] * 32 == counters.external_hit_tokens
    assert outcomes["capacity", "evicted"] == outcomes["unexplained", "missing"] == 0


def test_case_19_only_what_no_tier_served_is_lost() -> None:
    snapshot = stored(keep=3).snapshot()
    counters = present(snapshot.counters)
    outcomes = dict(zip(OUTCOMES, counters.outcomes, strict=True))
    lost = counters.ceiling_hit_blocks - (counters.hit_tokens + counters.external_hit_tokens) / 32
    assert outcomes["capacity", "evicted"] == lost > 0
    found = verdict(snapshot)[0]
    assert found.rule == "capacity-bound"
    assert found.loss == pytest.approx(lost / counters.prompt_blocks)
    assert "A second tier served another" in words(found)
    assert "or a larger second tier" in words(found)


def test_case_19_on_a_page_of_vllm_alone() -> None:
    text_ = "".join(
        f'# TYPE vllm:{name} counter\nvllm:{name}_total{{engine="0",model_name="m"}} {value}\n'
        for name, value in (
            ("prefix_cache_queries", 360_000),
            ("prefix_cache_hits", 40_640),
            ("external_prefix_cache_queries", 319_360),
            ("external_prefix_cache_hits", 247_360),
        )
    )
    (plain,) = parse(text_, now=0.0).without_plugin
    found = without_plugin(plain)
    assert "11.3 % of 360,000 prompt tokens were served from the cache" in words(found)
    assert "Another 68.7 % were loaded through a KV connector (a second tier or a prefiller): 80 %" in words(found)


def test_case_26_no_reuse_is_a_ceiling_of_zero() -> None:
    engine = VirtualEngine(16, 5000)
    for number in range(300):
        engine.prompt(number, text(("image", number), 640))
    snapshot = engine.snapshot()
    estimate = present(snapshot.estimate)
    assert estimate.ready
    assert (estimate.ceiling, estimate.observed, estimate.predicted["reuse_time"]) == (0, 0, 0)
    assert estimate.ceiling_stderr == pytest.approx(1 / 300)
    findings = verdict(snapshot)
    assert rules(findings) == ["cold-workload", "healthy"]
    assert "no capacity can hit more than 0 % ± 0.3" in words(findings[0])
    assert "None of 300 prompts" in words(findings[0])
    assert not any("wait" in words(finding).lower() for finding in findings)
    # Too few requests are another matter.
    young = VirtualEngine(16, 5000)
    for number in range(50):
        young.prompt(number, text(("image", number), 640))
    assert rules(verdict(young.snapshot())) == ["not-enough-data"]


def test_case_29_a_front_end_without_the_plugins_metrics() -> None:
    openmetrics = """\
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{model_name="m",engine="0"} 200000
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{model_name="m",engine="0"} 50000
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{model_name="m",engine="0"} 0
# TYPE vllm:cache_config info
vllm:cache_config_info{block_size="16",enable_prefix_caching="true",num_gpu_blocks="10001",engine="0"} 1
# EOF
"""
    (plain,) = parse(openmetrics, now=0.0).without_plugin
    found = without_plugin(plain)
    assert found.confidence < 1
    assert "This page has no metrics of the hitratio plugin" in words(found)
    assert "port 9577" in words(found)
    assert "25 % of 200,000 prompt tokens" in words(found)
    assert "10,000 blocks, 160,000 tokens" in words(found)


def documents(minutes_idle: int = 0) -> Snapshot:
    """Documents that a small cache has all evicted, then fewer of which it keeps most, then nothing for a while."""
    engine, rng = VirtualEngine(16, 300, window_seconds=60), Random(4)
    for number in range(2400):
        document = number % 41 if number < 1600 else rng.randrange(16)
        engine.prompt(number / 4, text(document, 320) + text(("question", number), 5))
    return engine.snapshot(at=engine.now + 60 * minutes_idle)


def test_case_31_an_idle_engine_has_lost_nothing() -> None:
    idle = documents(minutes_idle=7)
    assert present(idle.estimate).requests == 0
    # From the exporter and from a page of metrics alike: verdict compares them.
    assert rules(verdict(idle)) == ["not-enough-data"]
    (read,) = parse(page(idle), now=idle.wall_time).snapshots
    assert rules(verdict(read)) == ["not-enough-data"]


def test_case_31_under_load_the_loss_fits_its_evidence() -> None:
    busy = documents()
    estimate = present(busy.estimate)
    found = next(finding for finding in verdict(busy) if finding.rule == "capacity-bound")
    ceiling, observed = present(estimate.ceiling), present(estimate.observed)
    assert present(found.loss) <= ceiling - observed
    assert f"{100 * present(found.loss):.1f} points" in found.summary
    assert f"The hit ratio is {percent(observed)}" in words(found)
    assert f"(the ceiling) is {percent(ceiling)}" in words(found)
    assert "since the start" not in words(found)
    totals = present(busy.counters)
    assert totals.outcomes[OUTCOMES.index(("capacity", "evicted"))] > 2 * ceiling * totals.prompt_blocks / 3


def test_case_34_answers_that_are_never_sent_back() -> None:
    engine = VirtualEngine(16, 2000, window_seconds=1200)
    asked: dict[int, list[object]] = {}
    for number in range(6000):
        client, turn = number % 40, number // 40
        # A client starts over after ten turns, and sends its own words only.
        if turn % 10 == 0:
            asked[client] = []
        asked[client] = asked[client] + text((client, turn), 160)
        answer = text(("answer", client, turn), 160)
        ids = chain(asked[client], 16)
        key = f"{client}-{turn // 10}"
        cached = chain(asked[client] + answer, 16)
        engine.tell(3 * number, len(asked[client]), cached, 160 * (turn % 10), cached=len(cached), conversation=key)
        assert len(cached) == len(ids) + 10
    snapshot = engine.snapshot()
    found = next(finding for finding in verdict(snapshot) if finding.rule == "template-rewrites-history")
    # Of 20 blocks that a turn writes, the 10 of its answer are not asked for; a tenth of the turns is the last one.
    more = present(snapshot.counters).since(present(snapshot.earlier))
    share = more.unreused_history_blocks / more.written_blocks
    assert share == pytest.approx(0.9 * 10 / 20, abs=0.02)
    assert f"{percent(share)} of the blocks written" in found.summary
    assert "in the last" in found.evidence[0]
    assert "since the start" not in words(found)
    assert "The client does not send answers back" in words(found)
    assert "template" not in found.summary
    assert found.confidence < 0.8
    assert not found.loss

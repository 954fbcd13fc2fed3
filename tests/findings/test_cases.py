"""17 situations that people who run vLLM reported: the right number, and the right first finding."""

from dataclasses import replace
from random import Random

import pytest

from tests.support.example_snapshots import page
from tests.support.verdict import verdict, words
from tests.support.virtual_engine import VirtualEngine, chain, present, text
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.rules import diagnose_fleet
from vllm_hitratio_plugin.findings.without_plugin import without_plugin
from vllm_hitratio_plugin.metrics.reader import parse
from vllm_hitratio_plugin.snapshot import OUTCOMES, Snapshot, VllmCounters


def first(snapshot: Snapshot) -> Finding:
    return verdict(snapshot)[0]


def outcomes_of(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    assert snapshot.estimate is not None
    return dict(zip(OUTCOMES, snapshot.estimate.outcomes, strict=True))


@pytest.mark.parametrize(
    ("block_size", "lengths", "hits"),
    [
        pytest.param(528, (480, 552, 979), (0, 528, 528), id="case-1"),
        pytest.param(3584, (2015, 8015, 32015, 47074), (0, 7168, 28672, 46592), id="case-2"),
    ],
)
def test_cases_1_and_2_prefixes_shorter_than_a_block(
    block_size: int, lengths: tuple[int, ...], hits: tuple[int, ...]
) -> None:
    engine = VirtualEngine(block_size, 1000)
    for number, (length, hit) in enumerate(zip(lengths, hits, strict=True)):
        assert engine.prompt(2 * number, text(number, length)) == 0
        assert engine.prompt(2 * number + 1, text(number, length)) == hit
    snapshot = engine.snapshot()
    found = first(snapshot)
    partial = outcomes_of(snapshot)["partial", "tail"] / sum(outcomes_of(snapshot).values())
    assert found.rule == "granularity-bound"
    assert f"up to {100 * partial:.1f} points" in found.evidence[0]
    assert f"2 prompts of {2 * len(lengths)}" in words(found)
    assert "Such prompts never hit, by design; the cache is not broken" in words(found)


def test_case_3_no_prompt_is_longer_than_a_block() -> None:
    found = first(VirtualEngine(8192, 100).snapshot(max_model_len=4096))
    assert (found.rule, found.severity) == ("block-too-large", "critical")
    assert "a block holds 8,192 tokens and the longest request allowed has 4,096" in found.summary
    assert first(VirtualEngine(4095, 100).snapshot(max_model_len=4096)).rule != "block-too-large"


def test_case_4_preempted_requests_are_no_new_prompts() -> None:
    engine = VirtualEngine(16, 120)
    for number in range(300):
        tokens = 16 * 20
        ids = chain(text(number, tokens), 16)
        engine.tell(number, tokens, ids, 0)
        if number % 3 == 0:
            # When it comes back it finds most of itself, and vLLM's lookup counts that.
            engine.tell(number + 0.5, tokens, ids, tokens - 16, counted=False, resumed=True)
    snapshot = engine.snapshot()
    assert (snapshot.counters.requests, snapshot.counters.resumed, snapshot.counters.hit_blocks) == (300, 100, 0)
    found = first(snapshot)
    assert found.rule == "preemption"
    assert "100 preempted requests came back" in words(found)
    assert "cold-workload" in [finding.rule for finding in verdict(snapshot)]
    doubled = replace(
        snapshot, vllm=VllmCounters("qwen3-8b", "0", queries=400 * 16 * 20.0, hits=100.0 * (16 * 20 - 16))
    )
    inconsistent = next(finding for finding in verdict(doubled) if finding.rule == "metric-inconsistent")
    assert "23.8 % is above the ceiling of 0 %, so it counts something twice" in words(inconsistent)


@pytest.mark.vllm
def test_case_5_a_waiting_request_is_counted_once() -> None:
    from vllm_hitratio_plugin.engine.probe import cache_facts
    from vllm_hitratio_plugin.engine.recorder import Admission, Recorder, Release
    from vllm_hitratio_plugin.engine.requests import tell
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPool

    pool = VllmPool(100, 128)
    engine = VirtualEngine(128, 100, pool=pool)
    recorder = Recorder(pool._manager)
    second = [*range(40), *range(100, 150)]
    assert pool.admit("first", 128 * 80, range(80)) == 0
    for _ in range(7):
        assert pool.admit("second", 128 * 90, second) is None
    pool.release("first")
    assert pool.admit("second", 128 * 90, second) == 40
    pool.release("second")
    records = recorder.records
    recorder.close()
    assert [type(record) for record in records] == [Admission, Release, Admission, Release]
    facts = cache_facts(pool._manager)
    for record in records:
        tell(engine.monitor, record, facts)
    engine.now = records[-1].time
    young = engine.snapshot()
    snapshot = replace(young, estimate=replace(young.estimate, window_seconds=600.0))
    counters = snapshot.counters
    assert (counters.requests, counters.prompt_blocks, counters.hit_blocks) == (2, 170, 40)
    # The counters of a vLLM that counts each of the eight lookups.
    every = VllmCounters("qwen3-8b", "0", queries=128.0 * (80 + 8 * 90), hits=128.0 * 8 * 40)
    found = first(replace(snapshot, vllm=every))
    assert found.rule == "metric-inconsistent"
    assert "40 % of 102,400 tokens; the admitted requests had 23.5 % of 21,760" in words(found)
    # Right after the start, the plugin's counters may just be older.
    assert "metric-inconsistent" not in [each.rule for each in verdict(replace(young, vllm=every))]
    once = replace(every, queries=128.0 * 170, hits=128.0 * 40)
    assert "metric-inconsistent" not in [each.rule for each in verdict(replace(snapshot, vllm=once))]


def test_case_6_a_ratio_of_sums() -> None:
    engine = VirtualEngine(16, 5000)
    hits = prompts = 0
    for number in range(150):
        hits += engine.prompt(2 * number, text("long", 1600) + text(number, 16)) // 16
        engine.prompt(2 * number + 1, text(("tiny", number), 10))
        prompts += 101 + 1
    snapshot = engine.snapshot()
    assert hits == 149 * 100
    assert snapshot.estimate.observed == pytest.approx(hits / prompts, rel=1e-12)
    assert first(snapshot).rule == "healthy"
    assert "Observed 97.4 %" in words(first(snapshot))


def test_case_7_a_window_moves_a_lifetime_average_does_not() -> None:
    engine = VirtualEngine(16, 1000, window_seconds=600)
    for second in range(0, 24 * 3600, 20):
        engine.prompt(second, text("shared", 128) + text(second, 32))
    change = 24 * 3600
    for number in range(900):
        name = "again" if number % 9 == 0 else ("new", number)
        engine.prompt(change + number, text(name, 160))
    snapshot = engine.snapshot()
    assert snapshot.estimate.observed == pytest.approx(0.1, abs=0.005)
    lifetime = snapshot.counters.hit_blocks / snapshot.counters.prompt_blocks
    assert lifetime > 0.65
    found = first(snapshot)
    assert found.rule == "cold-workload"
    assert snapshot.estimate.window_seconds == pytest.approx(600, abs=20)
    assert "in the last 10 min" in words(found)
    assert f"Since the start the hit ratio is {100 * lifetime:.1f} %" in words(found)


def test_case_8_the_round_of_the_cliff_beforehand() -> None:
    clients, turn, capacity = 20, 10, 1000
    engine = VirtualEngine(16, capacity)
    time = 0.0
    ratios, findings = [], []
    for rounds in range(1, 8):
        hits = 0
        for client in range(clients):
            time += 1
            hits += engine.prompt(time, text(client, 16 * turn * rounds), conversation=str(client)) // 16
        ratios.append(hits / (clients * turn * rounds))
        findings.append(first(engine.snapshot()))
    assert ratios[:5] == pytest.approx([0, 1 / 2, 2 / 3, 3 / 4, 4 / 5])
    # The cliff: a few heads survive the sixth round, nothing the seventh.
    assert ratios[5] < 0.15
    assert ratios[6] == 0
    # N / (20 · 10) = 5 rounds fit; the sixth does not.
    assert findings[3].rule == findings[4].rule == "working-set-near-capacity"
    assert "in round 6 they need 1,200 blocks" in words(findings[3])
    assert (findings[3].severity, findings[4].severity) == ("info", "warning")
    assert findings[6].rule == "capacity-bound"


def test_case_9_a_pause_longer_than_blocks_survive() -> None:
    engine = VirtualEngine(16, 10_000)
    for turn in range(1, 11):
        engine.prompt(turn, text("agent", 1600 * turn))
    for number in range(5770):
        engine.serve(10 + 300 * (number + 1) / 5771, 160, range(1_000_000 + 10 * number, 1_000_010 + 10 * number))
    assert engine.prompt(310, text("agent", 16000) + text("question", 160)) == 0
    snapshot = engine.snapshot()
    written = 10 * 5770 / 300
    assert snapshot.estimate.characteristic_time == pytest.approx(10_000 / written, rel=0.05)
    found = first(snapshot)
    assert found.rule == "capacity-bound"
    assert "A history that pauses for 300 s is evicted" in words(found)
    enough = int(words(found).split("pauses for 300 s is evicted; ")[1].split(" blocks")[0].replace(",", ""))
    assert enough == pytest.approx(300 * written, rel=0.05)
    # What it names does hold the conversation.
    larger = VirtualEngine(16, round(enough * 1.05))
    larger.prompt(10, text("agent", 16000))
    for number in range(5770):
        larger.serve(10 + 300 * (number + 1) / 5771, 160, range(1_000_000 + 10 * number, 1_000_010 + 10 * number))
    assert larger.prompt(310, text("agent", 16000) + text("question", 160)) == 16000


@pytest.mark.parametrize("kind", ["builtin", pytest.param("vllm", marks=pytest.mark.vllm)])
@pytest.mark.parametrize("needed", [1, 2, 3])
def test_case_10_the_tail_goes_first(kind: str, needed: int) -> None:
    from vllm_hitratio_plugin.replay.comparison import make_pool

    engine = VirtualEngine(16, 3, pool=make_pool(kind, 3, 16, "head"))  # type: ignore[arg-type]
    engine.serve(0, 48, range(3))
    for number in range(needed):
        engine.serve(1 + number, 16, [100 + number])
    assert engine.serve(9, 48, range(3)) == 16 * (3 - needed)
    snapshot = engine.snapshot()
    # The third block is also the last token's, which never hits: of the other two, needed - 1 were evicted.
    assert outcomes_of(snapshot)["capacity", "evicted"] == needed - 1
    assert snapshot.counters.shadow_hit_blocks == 3 - needed
    assert "engine-deviates" not in [finding.rule for finding in verdict(snapshot)]


def test_case_11_the_template_rewrites_history() -> None:
    engine = VirtualEngine(16, 50_000)
    for number in range(100):
        ask, think, answer = text(("ask", number), 2000), text(("think", number), 800), text(("answer", number), 300)
        engine.tell(number, 2000, chain(ask + think + answer, 16), 0, cached=(3100 - 1) // 16)
        again = chain(ask + answer + text(("more", number), 100), 16)
        engine.tell(number + 30.5, 2400, again, 2000)
    snapshot = engine.snapshot()
    assert snapshot.counters.ceiling_hit_blocks == 100 * 2000 / 16
    assert snapshot.counters.unreused_history_blocks == 100 * (3099 // 16 - 2000 // 16)
    found = first(snapshot)
    assert found.rule == "template-rewrites-history"
    assert "68.0 blocks per follow-up turn, over 100 turns" in words(found)
    assert "13.6 % of the cache's 50,000 blocks" in words(found)


def test_case_12_prompts_that_diverge_at_block_2() -> None:
    engine = VirtualEngine(16, 20_000)
    shared, behind = text("system", 40), text("tools", 23_944)
    for number in range(200):
        hit = engine.prompt(number, shared + text(("date", number), 16) + behind + text(("new", number), 200))
        assert hit == (0 if number == 0 else 32)
    snapshot = engine.snapshot()
    curve = snapshot.estimate.curve.values()
    assert max(curve) - min(curve) < 0.001
    found = first(snapshot)
    assert (found.rule, found.severity) == ("prompts-diverge-early", "warning")
    assert "Prompts diverge at block 2" in found.summary
    assert "share 2 blocks (32 tokens)" in words(found)
    assert "more memory won't help" in words(found)


def test_case_13_reuse_lost_to_routing() -> None:
    replicas, conversations, turns = 4, 300, 8

    def serve(route: Random | None) -> list[VirtualEngine]:
        engines = [VirtualEngine(16, 200_000) for _ in range(replicas)]
        for turn in range(1, turns + 1):
            for number in range(conversations):
                engine = engines[number % replicas if route is None else route.randrange(replicas)]
                engine.prompt(
                    turn * conversations + number,
                    text(number, 160 * turn),
                    conversation=str(number),
                    declared_turn=turn,
                )
        return engines

    sticky = [engine.snapshot() for engine in serve(None)]
    assert all(snapshot.counters.unmatched_turns == 0 for snapshot in sticky)
    assert [first(snapshot).rule for snapshot in sticky] == ["healthy"] * replicas
    assert diagnose_fleet(sticky) == {}
    random = [replace(engine.snapshot(), engine=str(index)) for index, engine in enumerate(serve(Random(1)))]
    assert [first(snapshot).rule for snapshot in random] == ["routing-loss"] * replicas
    turns_sent = sum(present(snapshot.counters).follow_up_turns for snapshot in random)
    found = 1 - sum(present(snapshot.counters).unmatched_turns for snapshot in random) / turns_sent
    assert turns_sent == conversations * (turns - 1)
    assert found == pytest.approx(1 / replicas, abs=0.03)
    (fleet,) = diagnose_fleet(random)["qwen3-8b"]
    assert fleet.rule == "fleet-routing-loss"
    assert "Random routing would give 75 %" in fleet.summary


def test_case_14_one_prompt_under_four_salts() -> None:
    engine = VirtualEngine(16, 1000)
    prompt = text("system", 1600) + text("question", 5)
    hits = [engine.prompt(number, prompt, namespace=f"salt-{number % 4}") for number in range(8)]
    assert hits == [0, 0, 0, 0, 1600, 1600, 1600, 1600]
    snapshot = engine.snapshot()
    assert outcomes_of(snapshot)["compulsory", "namespace"] == 3 * 100
    found = first(snapshot)
    assert found.rule == "duplicate-namespaces"
    assert "300 blocks (5.3 GiB per worker); such copies occupy 30 % of the cache's 1,000 at a time" in words(found)


def test_case_15_speculative_decoding_gives_up_a_unit() -> None:
    unit = 2144
    lengths = (3784, 7542, 11292, 15019, 18770)
    # Reported from vLLM; prediction and shadow must come to the same by themselves.
    hits = (0, 4288, 8576, 12864, 15008)
    engine = VirtualEngine(unit, 1000, dropped_blocks=1)
    for number, (length, hit) in enumerate(zip(lengths, hits, strict=True)):
        ids = chain(text(number, length), unit)
        engine.tell(10 * number, length, ids, 0)
        for again in (1, 2):
            before = present(engine.snapshot().counters)
            engine.tell(10 * number + again, length, ids, hit)
            more = engine.snapshot().counters.since(before)
            assert more.shadow_hit_blocks * unit == more.ceiling_hit_blocks * unit == hit
    snapshot = engine.snapshot()
    assert snapshot.counters.hit_blocks * unit == 2 * sum(hits)
    assert outcomes_of(snapshot)["partial", "dropped"] == 2 * len(lengths)
    found = first(snapshot)
    assert found.rule == "spec-decode-unit"
    assert "is known and constant; it is not a fault" in found.summary
    assert "engine-deviates" not in [finding.rule for finding in verdict(snapshot)]


def test_case_16_a_reset_is_no_divergence() -> None:
    engine = VirtualEngine(16, 20_000)
    for number in range(400):
        engine.prompt(number, text(number % 40, 800) + text(("new", number), 80))
    before = engine.snapshot()
    assert first(before).rule == "healthy"
    engine.reset(400.5)
    for number in range(401, 460):
        engine.prompt(number, text(number % 40, 800) + text(("new", number), 80))
    snapshot = engine.snapshot(last_reset=1_700_000_000.0, wall_time=1_700_000_060.0)
    assert outcomes_of(snapshot)["unexplained", "reset"] == 40 * 50
    assert outcomes_of(snapshot)["unexplained", "missing"] == 0
    assert snapshot.estimate.engine_divergence == pytest.approx(0, abs=1e-9)
    found = first(snapshot)
    assert found.rule == "cache-reset"
    assert "at 2023-11-14 22:13:20 UTC, 60 s ago" in found.summary
    assert "engine-deviates" not in [finding.rule for finding in verdict(snapshot)]


def documents() -> Snapshot:
    """200 documents of 50 blocks asked about at random, in a cache that holds 40 of them."""
    engine = VirtualEngine(16, 2048, target=0.6, window_seconds=2000)
    rng = Random(5)
    for number in range(5000):
        engine.prompt(number, text(rng.randrange(200), 800) + text(("question", number), 170))
    return engine.snapshot()


def test_case_17_a_low_ratio_with_caching_on() -> None:
    snapshot = documents()
    assert snapshot.estimate.observed == pytest.approx(0.15, abs=0.02)
    assert snapshot.estimate.ceiling == pytest.approx(0.80, abs=0.03)
    predicted = snapshot.estimate.predicted["reuse_time"]
    assert predicted == pytest.approx(snapshot.estimate.observed, abs=0.01)
    wanted = present(snapshot.estimate.recommended_blocks)
    check = VirtualEngine(16, round(wanted))
    rng = Random(5)
    hits = prompts = 0
    for number in range(5000):
        hit = check.prompt(number, text(rng.randrange(200), 800) + text(("question", number), 170)) // 16
        hits, prompts = (hits + hit, prompts + 61) if number >= 3000 else (0, 0)
    assert hits / prompts == pytest.approx(0.6, abs=0.01)
    # The same from the exporter's snapshot and from a page of metrics.
    (read,) = parse(page(snapshot), snapshot.wall_time).snapshots
    for seen in (snapshot, read):
        found = first(seen)
        assert (found.rule, found.severity) == ("capacity-bound", "warning")
        assert f"The target of 60 % needs {-(-wanted // 1):,.0f} blocks" in words(found)
        assert f"(the ceiling) is {100 * snapshot.estimate.ceiling:.1f} %" in words(found)
        rules = [finding.rule for finding in verdict(seen)]
        assert "healthy" not in rules
        assert "prefix-caching-off" not in rules


def test_case_17_without_the_plugin() -> None:
    found = without_plugin(
        VllmCounters("m", "0", caching=True, block_size=16, capacity_blocks=2048, queries=1e6, hits=1.5e5)
    )
    assert (found.rule, found.severity) == ("without-plugin", "info")
    assert "15 % of 1,000,000 prompt tokens" in words(found)
    assert "2,048 blocks, 32,768 tokens" in words(found)
    assert "What can't be known from this page: the ceiling" in words(found)
    assert "enable-prefix-caching" not in words(found)

"""Case 18: clients that ask the same new prompt at once, on vLLM's own scheduler."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support import drive
from tests.support.random_schedule import Watched
from tests.support.verdict import verdict
from tests.support.virtual_engine import present, snapshot_of
from vllm_hitratio_plugin.snapshot import OUTCOMES, REUSE_TIME

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize(
    ("tokens", "rounds", "budget", "threshold"),
    [(2_000, 60, 4096, 256), (16_000, 60, 8192, 512)],
    ids=["2,000 tokens, interleaved by 256", "16,000 tokens, interleaved by 512"],
)
def test_what_is_still_computed_is_no_fault_of_the_engine(
    tokens: int, rounds: int, budget: int, threshold: int, tiny_model: Path
) -> None:
    arguments = {
        "max_num_batched_tokens": budget,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": threshold,
        "max_model_len": 20_000,
    }
    engine = drive.Engine(str(tiny_model), 60_000, arguments=arguments)
    watched = Watched(engine.scheduler.kv_cache_manager, answers=1)
    rng = random.Random(1)
    for number in range(rounds):
        prompt = [rng.randrange(256) for _ in range(tokens)]
        for client in range(5):
            engine.add(f"{number}-{client}", prompt)
        while engine.scheduler.waiting or engine.scheduler.running:
            engine.step()
            watched.follow()
    assert not watched.found.different

    end = present(watched.last_time) + 1
    snapshot = snapshot_of(watched.monitor, estimate=watched.monitor.refresh(end), wall_time=end)
    counters, estimate = present(snapshot.counters), present(snapshot.estimate)
    outcomes = dict(zip(OUTCOMES, counters.outcomes, strict=True))
    blocks = (tokens - 1) // drive.BLOCK
    # The first of the five is new; the others could have had all but the tail.
    assert outcomes["compulsory", "new"] == rounds * blocks
    assert outcomes["hit", "local"] + outcomes["in_flight", "prefill"] == 4 * rounds * blocks
    assert outcomes["hit", "local"] > 0
    assert outcomes["unexplained", "missing"] == outcomes["capacity", "evicted"] == 0
    assert estimate.engine_divergence == pytest.approx(0)
    assert estimate.divergence == pytest.approx(0, abs=1e-9)
    assert present(estimate.predicted[REUSE_TIME]) == pytest.approx(present(estimate.observed))
    assert estimate.ceiling == pytest.approx(present(estimate.observed))
    findings = verdict(snapshot)
    assert findings[0].rule == "in-flight"
    waiting = outcomes["in_flight", "prefill"] / counters.prompt_blocks
    assert f"{100 * waiting:.1f}".rstrip("0").rstrip(".") + " points" in findings[0].summary
    assert 0.4 < waiting < 0.8
    assert "critical" not in {finding.severity for finding in findings}

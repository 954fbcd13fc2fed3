"""Every prompt block has one outcome, also where a KV connector loads a part of the prompt."""

from random import Random

import pytest

from tests.support.virtual_engine import VirtualEngine, chain, present, text
from vllm_hitratio_plugin.snapshot import OUTCOMES

BLOCK = 16


def outcomes(engine: VirtualEngine) -> dict[tuple[str, str], int]:
    counters = present(engine.snapshot().counters)
    assert sum(counters.outcomes) == counters.prompt_blocks
    return dict(zip(OUTCOMES, counters.outcomes, strict=True))


@pytest.mark.parametrize(
    ("external", "loaded", "evicted", "new"),
    [(0, 0, 20, 9), (5, 0, 20, 9), (160, 10, 10, 9), (320, 20, 0, 9), (400, 25, 0, 4), (480, 29, 0, 0)],
)
def test_what_a_connector_loads_is_taken_off_the_front_of_what_missed(
    external: int, loaded: int, evicted: int, new: int
) -> None:
    engine = VirtualEngine(BLOCK, 21)
    history = text("history", 320)
    engine.prompt(0, history + text("first", 1))
    engine.prompt(1, text("other", 336))
    engine.tell(2, 480, chain(history + text("second", 160), BLOCK), 0, external_tokens=external)
    found = outcomes(engine)
    assert (found["hit", "external"], found["capacity", "evicted"]) == (loaded, evicted)
    # Of the two prompts before, of 21 blocks each, all is new but the last one.
    assert found["compulsory", "new"] == 20 + 20 + new
    assert found["hit", "local"] == found["in_flight", "prefill"] == 0


def test_a_reset_and_a_changed_history_are_covered_from_the_front_too() -> None:
    engine = VirtualEngine(BLOCK, 1000)
    history = text("history", 320)
    engine.prompt(0, history + text("first", 1), conversation="c")
    engine.reset(1)
    engine.tell(2, 480, chain(history + text("second", 160), BLOCK), 0, external_tokens=160, conversation="c")
    found = outcomes(engine)
    assert (found["hit", "external"], found["unexplained", "reset"]) == (10, 10)
    changed = VirtualEngine(BLOCK, 1000)
    changed.prompt(0, history + text("first", 1), conversation="c")
    again = history[:80] + text("changed", 400)
    changed.tell(1, 480, chain(again, BLOCK), 80, external_tokens=80, conversation="c")
    found = outcomes(changed)
    assert (found["hit", "local"], found["hit", "external"], found["compulsory", "diverged"]) == (5, 5, 10)


@pytest.mark.parametrize("seed", range(5))
def test_outcomes_add_up_whatever_is_loaded(seed: int) -> None:
    rng = Random(seed)
    engine = VirtualEngine(BLOCK, 60, dropped_blocks=seed % 2)
    for number in range(300):
        client = rng.randrange(12)
        tokens = text(client, rng.randrange(1, 400)) + text((client, number), rng.randrange(40))
        hit = BLOCK * rng.randrange((len(tokens) - 1) // BLOCK + 1)
        external = rng.choice((0, rng.randrange(500)))
        engine.tell(number, len(tokens), chain(tokens, BLOCK), hit, external_tokens=external, conversation=str(client))
        if number % 97 == 96:
            engine.monitor.reset(number + 0.5)
    found = outcomes(engine)
    assert min(found.values()) >= 0
    assert found["hit", "external"] > 0

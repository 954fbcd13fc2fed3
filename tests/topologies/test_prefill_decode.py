"""One prefiller, one decoder, a proxy before them; ExampleConnector carries the KV through a folder."""

import json
import random
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.server import free_port
from examples.pd.proxy import Proxy
from tests.support import compatibility
from tests.support.real_server import BLOCK_SIZE, Server, serve

pytestmark = [pytest.mark.engines, pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(900)]

OPTIONS = ("--hitratio-window", "60", "--hitratio-interval", "0.5")
ANSWER = 70


@pytest.fixture(scope="module")
def pair(
    tiny_model: Path, shim: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server, int]]:
    folder = tmp_path_factory.mktemp("pd")
    connector = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(folder / "kv")},
    }
    options = (*OPTIONS, "--kv-transfer-config", json.dumps(connector))
    with (
        serve(tiny_model, folder / "p.log", *options, paths=[shim]) as prefiller,
        serve(tiny_model, folder / "d.log", *options, paths=[shim]) as decoder,
    ):
        port = free_port()
        urls = [f"http://127.0.0.1:{server.port}" for server in (prefiller, decoder)]
        proxy = Proxy(port, *urls)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield prefiller, decoder, port
        proxy.shutdown()
        proxy.server_close()


def ask(port: int, model: str, prompt: list[int]) -> list[int]:
    """The answer's token ids, through the proxy."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": ANSWER,
        "ignore_eos": True,
        "temperature": 0,
        "return_token_ids": True,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    tokens: list[int] = found["choices"][0]["token_ids"]
    return tokens


def whole(tokens: int) -> int:
    """Tokens of the full blocks among so many."""
    return tokens // BLOCK_SIZE * BLOCK_SIZE


def test_a_conversation_over_both(pair: tuple[Server, Server, int]) -> None:
    """P hits the prompts before, D the prompts and the answers before; what D loads is external."""
    prefiller, decoder, port = pair
    chooser = random.Random(4)
    history: list[int] = []
    before = answered = 0
    hits = {"P": 0, "D": 0}
    prompts = 0
    tokens = 0
    for _ in range(4):
        history += [chooser.randrange(256) for _ in range(chooser.randint(60, 200))]
        length = len(history)
        hits["P"] += min(whole(before), whole(length - 1))
        hits["D"] += min(whole(answered), whole(length - 1))
        before = length
        tokens += length
        answer = ask(port, prefiller.model, history)
        assert len(answer) == ANSWER
        history += answer
        answered = len(history) - 1  # the last token has no KV
        prompts += 1
    for server in (prefiller, decoder):
        server.wait_until_counted(prompts)
    # On P the conversation's answers come back as prompt: only what was prompt before can hit.
    assert prefiller.value("hitratio_hit_tokens_total") == hits["P"] > 0
    assert decoder.value("hitratio_hit_tokens_total") == hits["D"] > hits["P"]
    for server in (prefiller, decoder):
        assert server.value("hitratio_prompt_tokens_total") == tokens
        assert server.value("vllm:prefix_cache_hits_total") == server.value("hitratio_hit_tokens_total")
        assert server.value("hitratio_conversations_total") == 1
        # All that was there before was still there: what could be reused is what was.
        assert server.value("hitratio_curve_hit_blocks_total", capacity_blocks="+Inf") == (
            server.value("hitratio_hit_blocks_total")
        )
    # P computed what it did not have, D loaded what P had computed and D did not have.
    external = decoder.value("hitratio_external_hit_tokens_total")
    assert external is not None
    assert external > 0
    assert external == decoder.value("vllm:external_prefix_cache_hits_total")
    assert prefiller.value("hitratio_external_hit_tokens_total") == prefiller.value(
        "vllm:external_prefix_cache_hits_total"
    )
    compatibility.record(
        "topologies",
        "prefiller and decoder, ExampleConnector, proxy",
        what_was_seen="P: hits are the prompts before; D: prompts and answers before; external hits apart, equal to "
        "vLLM's counters on both",
    )

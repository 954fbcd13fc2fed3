"""Everything that is asked of one vLLM-Ascend with its vLLM, in a process of its own, as JSON.

    python -m tests.support.one_ascend MODEL_FOLDER RESULT_FILE ours-first|theirs-first

PYTHONPATH has the repository, the stub of the device's libraries, vLLM-Ascend and vLLM. Real are the platform, the
patches, the schedulers and the scheduler's side of the connectors; made up are the model's answers, the
news that a decoder has fetched a prompt's blocks, and what an external pool says it holds.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.support import drive
from vllm_hitratio_plugin.engine.recorder import Admission, Record, Recorder, Release, Reset

BLOCK = 128

PRODUCER = {
    "kv_connector": "MooncakeConnectorV1",
    "kv_role": "kv_producer",
    "kv_port": "30000",
    "kv_connector_extra_config": {"prefill": {"dp_size": 1, "tp_size": 1}, "decode": {"dp_size": 1, "tp_size": 1}},
}
POOL = {
    "kv_connector": "AscendStoreConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"backend": "mooncake", "lookup_rpc_port": "0"},
}

#: Schedulers by name: what the command line would say.
SCHEDULERS: dict[str, dict[str, Any]] = {
    "default": {},
    "async": {"async_scheduling": True},
    "balance": {"additional_config": {"enable_balance_scheduling": True}},
    "recompute": {"additional_config": {"recompute_scheduler_enable": True}, "kv_transfer_config": PRODUCER},
    "dynamic batch": {"additional_config": {"SLO_limits_for_dynamic_batch": 50}},
}

REMOTE_DECODE = {"kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}


def load(order: str) -> dict[str, Any]:
    """Load both plugins in one order, as entry points of one group may come."""
    from vllm_hitratio_plugin.plugin import register

    if order == "ours-first":
        register()
        early = [name for name in sys.modules if name.startswith(("vllm.v1.core", "vllm_ascend"))]
    import vllm_ascend

    vllm_ascend._ensure_global_patch()
    if order == "theirs-first":
        register()
        early = []
    return {"imported_early": early}


def engine(model: str, blocks: int = 64, **arguments: Any) -> drive.Engine:
    """An engine of the platform, whose own settings are read anew."""
    more = dict(arguments.pop("additional_config", {})) | {"refresh": True}
    if "kv_transfer_config" in arguments:
        from vllm.config import KVTransferConfig

        arguments["kv_transfer_config"] = KVTransferConfig(**arguments["kv_transfer_config"])
    return drive.Engine(model, blocks, arguments={"block_size": BLOCK, "additional_config": more, **arguments})


def two_turns(model: str, **arguments: Any) -> dict[str, Any]:
    """A conversation of two turns and a stranger; what was recorded beside what the scheduler's class is."""
    one = engine(model, **arguments)
    seen = Recorder(one.scheduler.kv_cache_manager)
    rng = random.Random(5)
    history = [rng.randrange(256) for _ in range(1000)]
    one.add("turn-1", history)
    one.run()
    one.add("stranger", [rng.randrange(256) for _ in range(500)])
    one.run()
    one.add("turn-2", [*history, *(rng.randrange(256) for _ in range(300))])
    one.run()
    records = [_plain(record) for record in seen.records]
    return {"class": [base.__name__ for base in type(one.scheduler).__mro__], "records": records, **_said(one)}


def _plain(record: Record) -> list[Any]:
    """A record without its time."""
    assert not isinstance(record, Reset)
    name = record.request.request_id
    return [name, record.hit_tokens, record.external_tokens] if isinstance(record, Admission) else [name]


def producer(model: str) -> dict[str, Any]:
    """A prefiller: a finished prompt's blocks stay until the decoder has fetched them."""
    from vllm.v1.outputs import KVConnectorOutput

    one = engine(model, kv_transfer_config=PRODUCER)
    manager = one.scheduler.kv_cache_manager
    seen = Recorder(manager)
    rng = random.Random(6)
    prompts = {name: [rng.randrange(256) for _ in range(1000)] for name in ("a", "b")}
    for name, tokens in prompts.items():
        one.add(name, tokens, extra=REMOTE_DECODE)
        one.run()
    for _ in range(5):
        one.step()
    finished = [record.request.request_id for record in seen.records if isinstance(record, Release)]
    free_before = manager.block_pool.get_num_free_blocks()
    one.service.refresh()
    held_before = one.service._monitor.running
    # A prompt that comes while both are pinned still hits them.
    again = one.add("a-again", [*prompts["a"], *range(100)], extra=REMOTE_DECODE)
    one.run()
    releases = []
    for name in ("b", "a-again", "a"):
        one.connector_output = KVConnectorOutput(finished_sending={name})
        one.step()
        releases.append([record.request.request_id for record in seen.records if isinstance(record, Release)])
    one.service.refresh()
    return {
        "released_at_finish": finished,
        "free_while_pinned": free_before,
        "held_while_pinned": held_before,
        "hit_of_pinned": next(
            record.hit_tokens for record in seen.records if isinstance(record, Admission) and record.request is again
        ),
        "pinned_seen": next(
            64 - record.free_blocks
            for record in seen.records
            if isinstance(record, Admission) and record.request is again
        ),
        "releases": releases,
        "free_after": manager.block_pool.get_num_free_blocks(),
        "held_after": one.service._monitor.running,
        **_said(one),
    }


def overloaded_producer(model: str) -> dict[str, Any]:
    """All blocks pinned: the next prompt is looked up at every step, and counts once, when it gets in."""
    from vllm.v1.outputs import KVConnectorOutput

    one = engine(model, 20, kv_transfer_config=PRODUCER)
    seen = Recorder(one.scheduler.kv_cache_manager)
    for index in range(2):
        one.add(f"p{index}", range(index, 1000 + index), extra=REMOTE_DECODE)
        one.run()
    one.add("waits", range(2, 1002), extra=REMOTE_DECODE)
    for _ in range(50):
        one.step()
    waiting = [record.request.request_id for record in seen.records if isinstance(record, Admission)]
    one.connector_output = KVConnectorOutput(finished_sending={"p0"})
    one.step()
    one.run()
    return {
        "before": waiting,
        "after": [record.request.request_id for record in seen.records if isinstance(record, Admission)],
        **_said(one),
    }


def external(model: str) -> dict[str, Any]:
    """A pool beside the cache that holds the first 512 tokens of everything."""
    settings = Path("mooncake.json")
    settings.write_text(json.dumps({"protocol": "ascend", "metadata_server": "P2PHANDSHAKE"}))
    os.environ["MOONCAKE_CONFIG_PATH"] = str(settings.resolve())
    one = engine(model, kv_transfer_config=POOL)

    class Pool:
        def lookup(self, *args: Any, **kwargs: Any) -> int:
            return 512

    one.scheduler.connector.connector_scheduler.client = Pool()
    seen = Recorder(one.scheduler.kv_cache_manager)
    rng = random.Random(8)
    history = [rng.randrange(256) for _ in range(900)]
    for name, tokens in (("turn-1", history), ("turn-2", [*history, *range(200)])):
        one.add(name, tokens)
        one.run()
    return {
        "admitted": [
            [record.request.request_id, record.hit_tokens, record.external_tokens]
            for record in seen.records
            if isinstance(record, Admission)
        ],
        **_said(one),
    }


def caching_off(model: str) -> dict[str, Any]:
    """The prefiller as vLLM-Ascend's own pages start it."""
    one = engine(model, enable_prefix_caching=False, kv_transfer_config=PRODUCER)
    for index in range(3):
        one.add(f"r{index}", range(1000), extra=REMOTE_DECODE)
        one.run()
    return _said(one)


def mla() -> dict[str, Any]:
    """A cache of DeepSeek's kind, which some versions replace a class for (docs/vllm.md#vllm-ascend)."""
    import torch
    from vllm.v1 import kv_cache_interface

    spec = drive.fitting(
        kv_cache_interface.MLAAttentionSpec, block_size=BLOCK, num_kv_heads=1, head_size=64, dtype=torch.float16
    )
    manager = drive.manager(64, BLOCK, config=drive.cache_config(64, spec))
    hasher = drive.Hasher(BLOCK)
    hits = [drive.admit(manager, drive.request(f"m{index}", range(500), hasher)) for index in range(2)]
    return {"spec": type(spec).__name__, "hits": hits}


def _said(one: drive.Engine) -> dict[str, Any]:
    one.service.refresh()
    snapshot = one.service.snapshot
    one.service.stop()
    counters = snapshot.counters
    return {
        "unhashed": snapshot.unhashed,
        "degraded": snapshot.degraded,
        "counted": counters
        and [counters.requests, counters.hit_tokens, counters.external_hit_tokens, counters.ceiling_hit_blocks],
    }


def main() -> None:
    """Run everything; what fails says so in its place."""
    model, result, order = sys.argv[1:]
    found: dict[str, Any] = load(order)
    from vllm.platforms import current_platform

    found["platform"] = type(current_platform).__name__
    asked: dict[str, Any] = {f"scheduler {name}": (two_turns, (model,), more) for name, more in SCHEDULERS.items()}
    asked |= {
        function.__name__: (function, (model,), {})
        for function in (producer, overloaded_producer, external, caching_off)
    }
    asked["mla"] = (mla, (), {})
    for name, (function, arguments, more) in asked.items():
        try:
            found[name] = function(*arguments, **more)
        except Exception:
            found[name] = {"error": traceback.format_exc()}
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

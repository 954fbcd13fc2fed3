"""Everything that is asked of one vLLM, in a process of its own, as JSON.

python -m tests.support.one_version MODEL_FOLDER RESULT_FILE
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support import drive, random_schedule
from vllm_hitratio_plugin.engine.probe import CacheFacts, cache_facts
from vllm_hitratio_plugin.engine.recorder import Admission, Progress, Record, Recorder, Release
from vllm_hitratio_plugin.engine.service import Service
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.settings import Settings
from vllm_hitratio_plugin.snapshot import OUTCOMES


def trace() -> Iterator[tuple[str, list[int]]]:
    """220 prompts of 30 conversations, the same on every version: a shared preamble, growing histories."""
    rng = random.Random(7)
    preamble = [rng.randrange(256) for _ in range(100)]
    histories = [list(preamble) if index % 2 else [] for index in range(30)]
    for index in range(220):
        number = min(int(rng.expovariate(0.15)), 29)
        histories[number] += [rng.randrange(256) for _ in range(rng.randrange(20, 180))]
        yield f"c{number}-{index}", list(histories[number])


def watched(manager: Any, **settings: Any) -> Service:
    """A service on a manager; no thread of its own, so that nothing depends on the clock."""
    values = asdict(Settings.from_env({})[0]) | {"port": 0} | settings
    return Service(manager, cache_facts(manager), Settings(**values), model_name="tiny", engine="0")


def plain(record: Record) -> list[Any]:
    """A record without its time."""
    if isinstance(record, Admission):
        request, hit, external = record.request, record.hit_tokens, record.external_tokens
        return [
            "admit",
            request.request_id,
            record.prompt_tokens,
            hit,
            external,
            record.free_blocks,
            record.preemptions,
        ]
    if isinstance(record, Progress):
        return ["progress", record.request.request_id, record.computed_tokens, record.free_blocks]
    return ["release", record.request.request_id] if isinstance(record, Release) else ["reset"]


def manager_trace(blocks: int, hold: int) -> dict[str, Any]:
    """The trace through the real manager, ``hold`` requests at a time, beside the exact LRU."""
    manager = drive.manager(blocks)
    facts = cache_facts(manager)
    service = watched(manager)
    seen = Recorder(manager)
    hasher = drive.Hasher(drive.BLOCK)
    exact = BlockLRU(blocks, drive.BLOCK, unhashed=facts.unhashed)  # type: ignore[arg-type]
    held: list[Any] = []
    records = []
    exact_hits = prompt_blocks = 0
    for name, tokens in trace():
        request = drive.request(name, tokens, hasher)
        while drive.admit(manager, request) is None:
            exact.release(held[0].request_id)
            manager.free(held.pop(0))
        hits = exact.admit(name, len(tokens), request.block_hashes)
        assert hits is not None
        exact_hits += hits
        prompt_blocks += -(-len(tokens) // drive.BLOCK)
        held.append(request)
        if len(held) >= hold:
            exact.release(held[0].request_id)
            manager.free(held.pop(0))
        records += [plain(record) for record in seen.records]
        seen.queue.clear()
        service.drain()
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    return {
        "records": records,
        "observed": counters.hit_blocks / counters.prompt_blocks,
        "exact": exact_hits / prompt_blocks,
        "ceiling": counters.ceiling_hit_blocks / counters.prompt_blocks,
        "prompts": counters.requests,
    }


def hits(prompts: list[tuple[int, int]], block_size: int, blocks: int = 64, **more: Any) -> dict[str, Any]:
    """Prompts as (content, length), one after the other; the hits in tokens, as vLLM and as the counters have them."""
    manager = drive.manager(blocks, block_size, **more)
    service = watched(manager)
    hasher = drive.Hasher(block_size * more.get("ranks", 1))
    tokens = []
    for index, (content, length) in enumerate(prompts):
        rng = random.Random(content)
        request = drive.request(f"r{index}", [rng.randrange(256) for _ in range(length)], hasher)
        tokens.append(drive.admit(manager, request))
        manager.free(request)
    service.refresh()
    counters = service.snapshot.counters
    return {
        "hits": tokens,
        "counted": counters and counters.hit_tokens,
        "ceiling_blocks": counters and counters.ceiling_hit_blocks,
        "hit_blocks": counters and counters.hit_blocks,
        "prompt_blocks": counters and counters.prompt_blocks,
        "requests": counters and counters.requests,
        "degraded": service.snapshot.degraded,
        "dropped": cache_facts(manager).dropped_blocks,
    }


def one_text(*variants: dict[str, Any]) -> dict[str, Any]:
    """The same 200 tokens under each set of a request's arguments, one after the other: hits in tokens, counters."""
    manager = drive.manager(64)
    service = watched(manager)
    hasher = drive.Hasher(drive.BLOCK)
    found = []
    for index, arguments in enumerate(variants):
        request = drive.request(f"r{index}", range(200), hasher, **arguments)
        found.append(drive.admit(manager, request))
        manager.free(request)
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    return {
        "hits": found,
        "ceiling_blocks": counters.ceiling_hit_blocks,
        "hit_blocks": counters.hit_blocks,
        "conversations": counters.conversations,
        "requests": counters.requests,
        "uncounted": counters.uncounted,
    }


def case_salts() -> dict[str, Any]:
    """Case 14: one prompt under four cache salts, twice over."""
    return one_text(*({"cache_salt": f"salt-{index % 4}"} for index in range(8)))


def case_adapters() -> dict[str, Any]:
    """Case 14: one prompt under four LoRA adapters, twice over."""
    from vllm.lora.request import LoRARequest

    adapters = [LoRARequest(lora_name=f"a{n}", lora_int_id=n, lora_path=f"/a{n}") for n in (1, 2, 3, 4)]
    return one_text(*({"lora_request": adapter} for adapter in 2 * adapters))


def case_history() -> dict[str, Any]:
    """Case 11: the second prompt drops the thinking of the first answer."""
    manager = drive.manager(512)
    service = watched(manager)
    hasher = drive.Hasher(drive.BLOCK)
    rng = random.Random(1)
    prompt, thinking, said, more = ([rng.randrange(256) for _ in range(n)] for n in (2000, 800, 300, 100))
    first = drive.request("t1", prompt, hasher, max_tokens=1100)
    drive.admit(manager, first)
    drive.answer(manager, first, thinking + said)
    manager.free(first)
    second = drive.request("t2", [*prompt, *said, *more], hasher)
    rewritten = drive.admit(manager, second)
    manager.free(second)
    third = drive.request("t3", [*prompt, *thinking, *said, *more], hasher)
    kept = drive.admit(manager, third)
    manager.free(third)
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    return {"rewritten": rewritten, "kept": kept, "ceiling_blocks": counters.ceiling_hit_blocks}


def case_reset() -> dict[str, Any]:
    """Case 16: the cache is dropped between two askings of the same prompts."""
    manager = drive.manager(512)
    service = watched(manager)
    hasher = drive.Hasher(drive.BLOCK)
    found = []
    for turn in range(3):
        if turn == 2:
            assert manager.reset_prefix_cache()
        for index in range(5):
            request = drive.request(f"r{turn}-{index}", range(index, 200 + index), hasher)
            found.append(drive.admit(manager, request))
            manager.free(request)
    service.refresh()
    counters, estimate = service.snapshot.counters, service.snapshot.estimate
    assert counters is not None
    assert estimate is not None
    return {
        "hits": found,
        "ceiling_blocks": counters.ceiling_hit_blocks,
        "hit_blocks": counters.hit_blocks,
        "resets": counters.resets,
        "said_when": service.snapshot.last_reset is not None,
    }


def case_unreadable() -> dict[str, Any]:
    """``prompt_logprobs`` keeps a request from reading the cache: it is no prompt of the ratio, but it writes."""
    return one_text(*({"sampling": sampling} for sampling in 2 * ({"prompt_logprobs": 1}, {})))


def case_images() -> dict[str, Any]:
    """One text around two images, each twice: the placeholders' tokens are alike, the blocks are not."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    place = PlaceholderRange(offset=70, length=50)
    images = [
        MultiModalFeatureSpec(data=None, modality="image", identifier=f"image-{index}", mm_position=place)
        for index in (0, 1)
    ]
    return one_text(*({"mm_features": [image]} for image in 2 * images))


def case_hybrid() -> dict[str, Any]:
    """Full attention and sliding windows together: no one LRU describes it."""
    import torch
    from vllm.v1.kv_cache_interface import SlidingWindowSpec

    sliding = SlidingWindowSpec(
        block_size=drive.BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float16, sliding_window=64
    )
    config = drive.cache_config(512, drive.full_attention(drive.BLOCK), sliding)
    return _unmodelled(drive.manager(512, config=config))


def case_sliding() -> dict[str, Any]:
    """Sliding windows alone."""
    import torch
    from vllm.v1.kv_cache_interface import SlidingWindowSpec

    spec = SlidingWindowSpec(
        block_size=drive.BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float16, sliding_window=64
    )
    return _unmodelled(drive.manager(512, config=drive.cache_config(512, spec)))


def case_mamba() -> dict[str, Any]:
    """A state-space layer beside full attention."""
    import torch
    from vllm.v1.kv_cache_interface import MambaSpec

    spec = MambaSpec(block_size=drive.BLOCK, shapes=((16,),), dtypes=(torch.float16,), mamba_cache_mode="align")
    return _unmodelled(drive.manager(512, config=drive.cache_config(512, drive.full_attention(drive.BLOCK), spec)))


def _unmodelled(manager: Any) -> dict[str, Any]:
    from vllm_hitratio_plugin.metrics.collector import families

    service = watched(manager, target=0.8)
    hasher = drive.Hasher(drive.BLOCK)
    found = 0
    for index in range(300):
        request = drive.request(f"r{index}", range(index % 7, 200 + index % 7), hasher)
        hit = drive.admit(manager, request)
        assert hit is not None
        found += hit
        manager.free(request)
    service.refresh()
    counters = service.snapshot.counters
    assert counters is not None
    return {
        "hits": found,
        "counted": counters.hit_tokens,
        "not_modelled": service.snapshot.degraded.get("not_modelled"),
        "metrics": sorted(family.name for family in families([service.snapshot])),
    }


class Own:
    """vLLM's own prefix-cache counters, added up over the steps."""

    def __init__(self, engine: drive.Engine) -> None:
        self.total: Counter[str] = Counter()
        original: Callable[..., Any] = engine.scheduler.make_stats

        def make_stats(*args: Any, **kwargs: Any) -> Any:
            stats = original(*args, **kwargs)
            if stats is not None and stats.prefix_cache_stats is not None:
                for name in ("requests", "queries", "hits"):
                    self.total[name] += getattr(stats.prefix_cache_stats, name)
            return stats

        engine.scheduler.make_stats = make_stats


def scheduler_trace(model: str) -> dict[str, Any]:
    """The trace through the real scheduler, one request at a time and with room for all."""
    engine = drive.Engine(model, 4000)
    own, seen = Own(engine), Recorder(engine.scheduler.kv_cache_manager)
    records = []
    for name, tokens in trace():
        engine.add(name, tokens[:4000])
        engine.run()
        records += [plain(record) for record in seen.records]
        seen.queue.clear()
    engine.service.refresh()
    counters = engine.service.snapshot.counters
    engine.service.stop()
    return {
        "class": [base.__qualname__ for base in type(engine.scheduler).__mro__[:-1]],
        "records": records,
        "own": dict(own.total),
        "prompts": counters.requests,
        "hit_tokens": counters.hit_tokens,
        "prompt_tokens": counters.prompt_tokens,
        "degraded": engine.service.snapshot.degraded,
        "target": engine.service.snapshot.estimate.target,
    }


def scheduler_pressure(model: str) -> dict[str, Any]:
    """Cases 4 and 5: nothing in common, and so few blocks that prompts wait and running ones are preempted."""
    engine = drive.Engine(model, 40)
    own, seen = Own(engine), Recorder(engine.scheduler.kv_cache_manager)
    rng = random.Random(3)
    names = [f"r{index}" for index in range(30)]
    for name in names:
        engine.add(name, [rng.randrange(256) for _ in range(rng.randrange(200, 500))], max_tokens=120)
    engine.run()
    records = [plain(record) for record in seen.records]
    engine.service.refresh()
    counters = engine.service.snapshot.counters
    engine.service.stop()
    admitted = Counter(record[1] for record in records if record[0] == "admit" and not record[6])
    return {
        "first_admissions": sorted(admitted.values()),
        "requests": len(names),
        "readmissions": sum(record[0] == "admit" and record[6] > 0 for record in records),
        "readmission_hits": sum(record[3] for record in records if record[0] == "admit" and record[6] > 0),
        "prompts": counters.requests,
        "uncounted": counters.uncounted,
        "hit_blocks": counters.hit_blocks,
        "ceiling_blocks": counters.ceiling_hit_blocks,
        "own_lookups": own.total["requests"],
    }


def scheduler_broken_off(model: str) -> dict[str, Any]:
    """Clients that lose patience: prompts are aborted in the middle of their chunked prefill, and sent again."""
    from vllm.v1.request import RequestStatus

    engine = drive.Engine(model, 400, arguments={"max_num_batched_tokens": 512, "enable_chunked_prefill": True})
    own = Own(engine)
    rng = random.Random(5)
    left = 0
    for number in range(10):
        tokens = [rng.randrange(256) for _ in range(2000)]
        engine.add(f"impatient-{number}", tokens)
        for _ in range(number % 3 + 1):
            engine.step()
        left += (number % 3 + 1) * 512
        engine.scheduler.finish_requests(f"impatient-{number}", RequestStatus.FINISHED_ABORTED)
        engine.add(f"again-{number}", tokens)
        engine.run()
    engine.service.refresh()
    counters = engine.service.snapshot.counters
    engine.service.stop()
    return {
        "left": left,
        "own": dict(own.total),
        "hit_tokens": counters.hit_tokens,
        "ceiling_tokens": counters.ceiling_hit_blocks * drive.BLOCK,
        "shadow_tokens": counters.shadow_hit_blocks * drive.BLOCK,
        "unexplained": sum(
            blocks for (fate, _), blocks in zip(OUTCOMES, counters.outcomes, strict=True) if fate == "unexplained"
        ),
    }


def scheduler_streaming(model: str) -> dict[str, Any]:
    """A prompt that arrives in three pieces, as of a live transcript, and a later one that has it all."""
    engine = drive.Engine(model, 400)
    own = Own(engine)
    rng = random.Random(6)
    tokens = [rng.randrange(256) for _ in range(700)]
    for begin, end in ((0, 200), (200, 500), (500, 700)):
        engine.add("live", tokens[begin:end], resumable=end < 700)
        for _ in range(4):
            engine.step()
    engine.run()
    engine.add("after", tokens[:200])
    engine.run()
    engine.service.refresh()
    counters = engine.service.snapshot.counters
    engine.service.stop()
    return {
        "own": dict(own.total),
        "prompts": counters.requests,
        "prompt_tokens": counters.prompt_tokens,
        "hit_tokens": counters.hit_tokens,
        "ceiling_tokens": counters.ceiling_hit_blocks * drive.BLOCK,
        "degraded": engine.service.snapshot.degraded,
    }


def scheduler_asleep(model: str) -> dict[str, Any]:
    """What ``sleep`` does to the scheduler: requests are preempted and the cache is dropped; then it goes on."""
    engine = drive.Engine(model, 400)
    own = Own(engine)
    rng = random.Random(8)
    prompts = [[rng.randrange(256) for _ in range(300)] for _ in range(4)]
    for turn in range(3):
        for number, tokens in enumerate(prompts):
            engine.add(f"r{turn}-{number}", tokens, max_tokens=5)
        engine.step()
        if turn == 1:
            assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)
        engine.run()
    engine.service.refresh()
    snapshot = engine.service.snapshot
    engine.service.stop()
    return {
        "own_hits": own.total["hits"],
        "hit_tokens": snapshot.counters.hit_tokens,
        "prompts": snapshot.counters.requests,
        "resets": snapshot.counters.resets,
        "ledger": dict(zip(map("/".join, OUTCOMES), snapshot.counters.outcomes, strict=True)),
        "degraded": snapshot.degraded,
    }


def schedules(model: str) -> dict[str, Any]:
    """Random traffic, chunked in every way: admissions, and those whose hit is not the exact LRU's."""
    found = {}
    for name, schedule in random_schedule.SCHEDULES.items():
        comparison = random_schedule.run(model, 7, schedule)
        found[name] = {
            "prompts": comparison.prompts,
            "admissions": comparison.admissions,
            "hit_blocks": comparison.hit_blocks,
            "in_flight": comparison.outcomes["in_flight/prefill"],
            "different": comparison.different,
        }
    return found


def command_line(model: str) -> dict[str, Any]:
    """The flags on the real parser; leaves them in the environment, as the server's parent process does."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    # It moved twice: in 0.30 and in 0.33.
    for place in ("openai", "launchers", "common"):
        with contextlib.suppress(ModuleNotFoundError):
            cli_args = importlib.import_module(f"vllm.entrypoints.{place}.cli_args")
            break
    parser = cli_args.make_arg_parser(FlexibleArgumentParser())
    before = set(vars(parser.parse_args(["--model", model])))
    assert "HITRATIO_ENABLED" not in os.environ
    flags = ["--plugin", "hitratio", "--hitratio-target", "0.8", "--hitratio-port", "0", "--hitratio_window=30"]
    arguments = parser.parse_args(["--model", model, *flags])
    AsyncEngineArgs.from_cli_args(arguments)
    refused = []
    for wrong in (["--hitratio-target", "80%"], ["--hitratio-port", "99999"], ["--plugin", "nosuch"]):
        try:
            parser.parse_args(["--model", model, *wrong])
        except SystemExit as error:
            refused.append(error.code)
    return {
        "environment": {name: value for name, value in os.environ.items() if name.startswith("HITRATIO_")},
        "namespace": sorted(set(vars(arguments)) - before),
        "refused": refused,
    }


def main() -> None:
    """Run everything."""
    import vllm

    model = sys.argv[1]
    result: dict[str, Any] = {"version": vllm.__version__, "path": vllm.__path__[0]}
    result["command_line"] = command_line(model)
    facts: CacheFacts = cache_facts(drive.manager(64))
    result["facts"] = asdict(facts)
    result["roomy"] = manager_trace(4000, 1)
    result["evicting"] = manager_trace(150, 1)
    result["held"] = manager_trace(300, 4)
    result["cases"] = {
        "1": hits([(length, length) for length in (480, 480, 552, 552, 979, 979)], 528),
        "2": hits([(n, n) for length in (2015, 8015, 32015, 47074) for n in (length, length)], 3584),
        "3": hits([(1, 400), (1, 400), (1, 500), (1, 511)], 512, longest=512),
        "6": hits([(5, 3000), *[(n, 3000 if n == 5 else 40) for k in range(9) for n in (100 + k, 5)]], 32, 512),
        "10": hits([(1, 97), (2, 64), (1, 97)], 32, 4),
        "11": case_history(),
        "14": case_salts(),
        "14 adapters": case_adapters(),
        "context parallel": hits([(1, 200), (1, 200), (1, 129)], 32, ranks=2),
        "15": hits(
            [(n, n) for length in (3784, 7542, 11292, 15019, 18770) for n in (length, length)], 2144, use_eagle=True
        ),
        "16": case_reset(),
        "prompt_logprobs": case_unreadable(),
        "images": case_images(),
        "hybrid": case_hybrid(),
        "sliding": case_sliding(),
        "mamba": case_mamba(),
        "off": hits([(1, 200), (1, 200)], 32, enable_caching=False),
    }
    result["scheduler"] = scheduler_trace(model)
    result["pressure"] = scheduler_pressure(model)
    result["broken off"] = scheduler_broken_off(model)
    result["streaming"] = scheduler_streaming(model)
    result["asleep"] = scheduler_asleep(model)
    result["schedules"] = schedules(model)
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()

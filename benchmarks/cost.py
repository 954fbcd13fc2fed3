"""The plugin's cost relative to vLLM's own lookup, allocate and free: `make bench` writes build/bench/cost.json.

Two real KV cache managers serve the same requests in short alternating rounds, one as vLLM made it and one with our
recorder. The difference is the synchronous part. Everything else that the plugin does (reading the queue, the prefix
tree, the window, the fits, the snapshot, the thread's wake-ups) is timed on its own, at a given rate of requests in
virtual time, with window and index full. All times are CPU time of one thread; all results are ratios within one run.
"""

from __future__ import annotations

import argparse
import functools
import gc
import inspect
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.traffic import BLOCK_SIZE, Traffic, Turn

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

OUTPUT = Path("build/bench/cost.json")
RATE = 100.0
"""Requests per second of virtual time."""

ROUND = 50
"""Requests per round: few, so that both managers see the machine in the same state."""

BARS = {20: (0.05, 0.25), 200: (0.01, 0.15)}
"""By prompt blocks: the limits of the synchronous part and of all CPU time, as shares of vLLM's own."""

DECODE_BAR_US = 0.2
"""Limit of what a decode step of one request costs, µs."""

FILL_S = 700.0
"""Virtual seconds before any timing: more than the window."""


_USUAL = {
    "num_lookahead_tokens": 0,
    "num_external_computed_tokens": 0,
    "delay_cache_blocks": False,
    "num_encoder_tokens": 0,
    "full_sequence_must_fit": True,
    "reserved_blocks": 0,
    "has_scheduled_reqs": True,
    "skip_zeroing_group_ids": (),
}
"""The scheduler's other arguments to each admission, where the installed vLLM knows them."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=240, help="pairs of rounds per case (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=RATE, help="requests per second (default: %(default)g)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="(default: %(default)s)")
    arguments = parser.parse_args(argv)
    try:
        import vllm
    except ImportError as error:
        print(f"the benchmark needs a real vLLM in this environment: {error}", file=sys.stderr)
        return 2
    cases = [measure(Traffic(blocks, arguments.rate), arguments.rounds) for blocks in BARS]
    decode_us = decode_step()
    print(f"decode step: {decode_us:.3f} µs per request and step (at most {DECODE_BAR_US:g})")
    report = {"vllm_version": vllm.__version__, "block_size": BLOCK_SIZE, "cases": cases, "decode_us": decode_us}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    print(f"wrote {arguments.output}")
    return 0


def measure(traffic: Traffic, rounds: int) -> dict[str, Any]:
    """One case: everything in seconds of CPU time per request, then as ratios.

    The managers take turns at being watched and at going first, so that neither's place in memory matters.
    """
    managers = [_manager(traffic.capacity_blocks) for _ in range(2)]
    turns = traffic.turns(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        plugin = _Plugin(managers, traffic, folder)
        plugin.fill(turns)
        for number, chunk in enumerate(_chunks(turns, int(3 * traffic.capacity_blocks / traffic.grown_blocks / 2))):
            plugin.watch(number % 2)
            for manager in managers:
                _run(manager, _requests(chunk))
            plugin.collect(chunk)
            plugin.drain()
        gc.collect()
        gc.freeze()  # the collector need not visit what is remembered by now
        vllm_s, sync_s, drain_s = [], [], []
        hits = prompts = 0
        alive: list[Any] = []  # until the records are read: neither side may pay for freeing a request
        for number, chunk in enumerate(_chunks(turns, rounds * ROUND)):
            watched = number % 2
            plugin.watch(watched)
            spent = [0.0, 0.0]
            for each in (0, 1) if number // 2 % 2 else (1, 0):
                alive.append(_requests(chunk))
                began = time.thread_time()
                hits += _run(managers[each], alive[-1])
                spent[each] = (time.thread_time() - began) / len(chunk)
                prompts += sum(turn.tokens for turn in chunk)
            vllm_s.append(spent[1 - watched])
            sync_s.append(spent[watched] - spent[1 - watched])
            plugin.collect(chunk)
            took = plugin.drain()
            if took is not None:
                drain_s.append(took)
                alive.clear()
        gc.unfreeze()
        refresh_s = plugin.refreshes(turns)
        awake = plugin.awake()
    vllm, sync, drain = (statistics.median(times) for times in (vllm_s, sync_s, drain_s))
    refresh = refresh_s / (plugin.interval * traffic.rate)
    case = {
        "blocks": traffic.mean_blocks,
        "sync_ratio": sync / vllm,
        "cpu_ratio": (sync + drain + refresh + awake / traffic.rate) / vllm,
        "vllm_us": vllm * 1e6,
        "sync_us": sync * 1e6,
        "drain_us": drain * 1e6,
        "refresh_us": refresh * 1e6,
        "awake_us": awake / traffic.rate * 1e6,
        "refresh_ms": refresh_s * 1e3,
        "refresh_interval_s": plugin.interval,
        "requests_per_s": traffic.rate,
        "requests": rounds * ROUND,
        "capacity_blocks": traffic.capacity_blocks,
        "token_hit_ratio": hits / prompts,
    }
    _show(case)
    return case


def decode_step(rounds: int = 400, steps: int = 250) -> float:
    """What the recorder adds to ``allocate_slots`` of a running request that decodes, µs per request and step.

    The same call on the same manager in turns, wrapped and not, in the keywords of the scheduler.
    """
    from vllm_hitratio_plugin.engine.recorder import Recorder

    manager = _manager(1000)
    (request,) = _requests([Turn(0.0, "decoding", [bytes([number]) * 32 for number in range(20)], 20 * BLOCK_SIZE)])
    _run_admission(manager, request)
    plain = manager.allocate_slots
    recorder = Recorder(manager)
    watched = manager.allocate_slots
    spent: dict[Any, list[float]] = {plain: [], watched: []}
    gc.disable()
    for number in range(rounds):
        for method in (plain, watched) if number % 2 else (watched, plain):
            began = time.thread_time()
            for _ in range(steps):
                method(request, 1, num_lookahead_tokens=0)
            spent[method].append((time.thread_time() - began) / steps)
    gc.enable()
    assert not recorder.queue
    recorder.close()
    return (statistics.median(spent[watched]) - statistics.median(spent[plain])) * 1e6


class _Plugin:
    """The plugin's service on a clock of ours, and a recorder on each of two managers, one of them active."""

    def __init__(self, managers: Sequence[Any], traffic: Traffic, folder: str) -> None:
        from vllm_hitratio_plugin.engine import service
        from vllm_hitratio_plugin.engine.probe import cache_facts
        from vllm_hitratio_plugin.engine.recorder import Recorder
        from vllm_hitratio_plugin.settings import SNAPSHOT_DIR, Settings

        os.environ[SNAPSHOT_DIR] = folder
        self.now = 0.0
        # Only the service gets our clock: reading the real one is part of the recorder's cost.
        vars(service)["time"] = SimpleNamespace(
            monotonic=lambda: self.now, time=time.time, perf_counter=time.perf_counter
        )
        settings, _ = Settings.from_env({"HITRATIO_TARGET": "0.6", "HITRATIO_PORT": "0"})
        self.interval = settings.interval
        self._service = service.Service(managers[0], cache_facts(managers[0]), settings, model_name="model", engine="0")
        assert self._service._recorder is not None
        self._managers = managers
        self._recorders = [self._service._recorder, Recorder(managers[1])]
        self._wrappers = [
            {name: method for name, method in vars(manager).items() if hasattr(method, "__wrapped__")}
            for manager in managers
        ]
        self._waiting: list[tuple[Any, ...]] = []
        self._batch = traffic.rate * service._DRAIN_S
        self._refreshed = 0.0

    def watch(self, watched: int) -> None:
        """Activate the recorder of that manager only."""
        for number, (manager, wrappers) in enumerate(zip(self._managers, self._wrappers, strict=True)):
            for name, method in wrappers.items():
                if number == watched:
                    setattr(manager, name, method)
                else:
                    vars(manager).pop(name, None)

    def fill(self, turns: Iterator[Turn]) -> None:
        """Fill window and index with accesses, without vLLM."""
        from vllm_hitratio_plugin.access import Access

        monitor = self._service._monitor
        for turn in turns:
            monitor.admit(Access(turn.time, turn.name, turn.tokens, turn.blocks, 0, 0, 0))
            monitor.release(turn.time, turn.name)
            self._refresh_if_due(turn.time)
            if turn.time > FILL_S:
                return

    def collect(self, turns: Sequence[Turn]) -> None:
        """Take the records of these turns off the queues, and give them the turns' times."""
        times = {turn.name: turn.time for turn in turns}
        for each in self._recorders:
            self._waiting += [
                (kind, times[request.request_id], request, *rest) for kind, _, request, *rest in each.queue
            ]
            each.queue.clear()

    def drain(self) -> float | None:
        """Let the service read what was collected, once there is as much as it usually finds; seconds per request."""
        requests = len(self._waiting) // 2
        if requests < self._batch:
            return None
        self._recorders[0].queue.extend(self._waiting)
        now = self._waiting[-1][1]
        self._waiting.clear()
        began = time.thread_time()
        self._service.drain()
        spent = time.thread_time() - began
        self._refresh_if_due(now)
        return spent / requests

    def refreshes(self, turns: Iterator[Turn], count: int = 31) -> float:
        """Seconds per refresh, the mean of some at the service's own interval, with traffic in between."""
        from vllm_hitratio_plugin.access import Access

        spent = []
        for turn in turns:
            self._service._monitor.admit(Access(turn.time, turn.name, turn.tokens, turn.blocks, 0, 0, 0))
            self._service._monitor.release(turn.time, turn.name)
            took = self._refresh_if_due(turn.time)
            if took is not None:
                spent.append(took)
                if len(spent) == count:
                    break
        return statistics.fmean(spent)

    def awake(self, seconds: float = 3.0) -> float:
        """CPU seconds per second of the service's thread while it is idle."""
        before = set(threading.enumerate())
        self._service.start()
        (thread,) = set(threading.enumerate()) - before
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        time.sleep(0.5)
        began, used = time.perf_counter(), time.clock_gettime(clock)
        time.sleep(seconds)
        used = time.clock_gettime(clock) - used
        spent = time.perf_counter() - began
        self._service.stop()
        return used / spent

    def _refresh_if_due(self, now: float) -> float | None:
        self.now = now
        if now - self._refreshed < self.interval:
            return None
        self._refreshed = now
        began = time.thread_time()
        self._service.refresh()
        return time.thread_time() - began


def _chunks(turns: Iterator[Turn], count: int) -> Iterable[list[Turn]]:
    for _ in range(count // ROUND):
        yield list(itertools.islice(turns, ROUND))


def _manager(capacity_blocks: int) -> Any:
    import torch
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float16)
    arguments = {
        "kv_cache_config": KVCacheConfig(
            num_blocks=capacity_blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        "max_model_len": 1 << 20,
        "scheduler_block_size": BLOCK_SIZE,
        "hash_block_size": BLOCK_SIZE,
        "enable_caching": True,
        "log_stats": True,
    }
    known = inspect.signature(KVCacheManager.__init__).parameters
    return KVCacheManager(**{name: value for name, value in arguments.items() if name in known})


@functools.lru_cache(maxsize=4)
def _usual(manager: Any) -> dict[str, Any]:
    known = inspect.signature(type(manager).allocate_slots).parameters
    return {name: value for name, value in _USUAL.items() if name in known}


def _requests(turns: Sequence[Turn]) -> list[Any]:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    requests = []
    for turn in turns:
        request = Request(
            request_id=turn.name,
            prompt_token_ids=[0] * turn.tokens,
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            arrival_time=turn.time,
        )
        request.block_hashes = turn.blocks
        requests.append(request)
    return requests


def _run(manager: Any, requests: Sequence[Any]) -> int:
    """What `Scheduler.schedule` and `_free_request` do with each request's blocks; returns hit tokens."""
    total = 0
    for request in requests:
        total += _run_admission(manager, request)
        manager.free(request)
    return total


def _run_admission(manager: Any, request: Any) -> int:
    usual = _usual(manager)
    blocks, hit, *_ = manager.get_computed_blocks(request)
    allocated = manager.allocate_slots(
        request, request.num_tokens - hit, num_new_computed_tokens=hit, new_computed_blocks=blocks, **usual
    )
    assert allocated is not None
    request.num_computed_tokens = request.num_tokens
    return int(hit)


def _show(case: dict[str, Any]) -> None:
    most_sync, most_cpu = BARS[case["blocks"]]
    us = {name: case[f"{name}_us"] for name in ("vllm", "sync", "drain", "refresh", "awake")}
    print(
        f"{case['blocks']:4d} blocks, hit ratio {case['token_hit_ratio']:.2f}, N = {case['capacity_blocks']:,}:"
        f" vLLM {us['vllm']:.1f} µs per request\n"
        f"     synchronous {us['sync']:.2f} µs = {case['sync_ratio']:.2%} (at most {most_sync:.0%})\n"
        f"     all CPU time = {case['cpu_ratio']:.1%} (at most {most_cpu:.0%}): queue and tree {us['drain']:.1f} µs,"
        f" refresh {us['refresh']:.1f} µs, waking up {us['awake']:.2f} µs per request\n"
        f"     a refresh takes {case['refresh_ms']:.1f} ms every {case['refresh_interval_s']:g} s,"
        f" at {case['requests_per_s']:g} requests/s"
    )


if __name__ == "__main__":
    sys.exit(main())

"""An engine in virtual time: a block pool, its monitor, and the snapshot that the plugin would publish."""

import time
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.replay.pools.block_lru import BlockLRU
from vllm_hitratio_plugin.replay.pools.pool import Pool
from vllm_hitratio_plugin.snapshot import Counters, Snapshot

T = TypeVar("T")

Text = list[Hashable]


def text(name: Hashable, tokens: int) -> Text:
    """Tokens that no text of another name has."""
    return [(name, position) for position in range(tokens)]


def chain(tokens: Text, block_size: int, namespace: Hashable = None) -> list[Hashable]:
    """Chained ids of the full blocks, as vLLM's block hashes."""
    ids: list[Hashable] = []
    previous: Hashable = namespace
    for start in range(0, len(tokens) - block_size + 1, block_size):
        previous = hash((previous, tuple(tokens[start : start + block_size])))
        ids.append(previous)
    return ids


class VirtualEngine:
    """One engine; prompts are lists of tokens, or lengths with ready-made ids."""

    def __init__(self, block_size: int, capacity_blocks: int, *, pool: Pool | None = None, **settings: Any) -> None:
        self.block_size = block_size
        self.pool = pool if pool is not None else BlockLRU(capacity_blocks, block_size)
        self.monitor = Monitor(block_size=block_size, capacity_blocks=capacity_blocks, **settings)
        self.now = 0.0
        self._key = 0
        self._window = float(settings.get("window_seconds", 600.0))
        self._history: list[tuple[float, Counters]] = []

    def prompt(self, time: float, tokens: Text, namespace: Hashable = None, **access: Any) -> int:
        """Serve a prompt at once; returns its hit in tokens."""
        ids = chain(tokens, self.block_size, namespace)
        if namespace is not None:
            access |= {"namespace": namespace, "content": lambda: chain(tokens, self.block_size)}
        return self.serve(time, len(tokens), ids, **access)

    def serve(self, time: float, tokens: int, ids: Sequence[Hashable], **access: Any) -> int:
        """The same for chained ids."""
        self._key += 1
        self._look(time)
        in_use = self.pool.in_use_blocks
        hit = self.pool.admit(self._key, tokens, ids)
        assert hit is not None
        hit_tokens = hit * self.block_size
        self.monitor.admit(Access(time, self._key, tokens, ids, hit_tokens=hit_tokens, in_use_blocks=in_use, **access))
        self.pool.release(self._key)
        self.monitor.release(time, self._key)
        return hit_tokens

    def tell(self, time: float, tokens: int, ids: Sequence[Hashable], hit_tokens: int, **access: Any) -> None:
        """A prompt of an engine other than the pool, with the hit given."""
        self._key += 1
        self._look(time)
        cached: int = access.pop("cached", 0)
        self.monitor.admit(Access(time, self._key, tokens, ids, hit_tokens=hit_tokens, in_use_blocks=0, **access))
        self.monitor.release(time, self._key, ids, cached)

    def reset(self, time: float) -> None:
        """Drop the cache."""
        assert self.pool.reset()
        self.monitor.reset(time)

    def _look(self, time: float) -> None:
        """Keep the counters now and then, as the plugin's service does."""
        self.now = time
        if not self._history or time - self._history[-1][0] >= self._window / 10:
            self.monitor.refresh(time)
            self._history.append((time, self.monitor.counters))

    def snapshot(self, at: float | None = None, **facts: Any) -> Snapshot:
        """What the plugin would publish at that moment."""
        moment = self.now if at is None else at
        estimate = self.monitor.refresh(moment)
        known: dict[str, Any] = {"estimate": estimate, "wall_time": moment, "last_reset": self.monitor.last_reset}
        for time_, counters in reversed(self._history):
            if moment - time_ >= estimate.window_seconds and counters.requests:
                known |= {"earlier": counters, "earlier_seconds": moment - time_}
                break
        return snapshot_of(self.monitor, **known | facts)


def present(value: T | None) -> T:
    """The value, which must not be absent."""
    assert value is not None
    return value


def snapshot_of(monitor: Monitor, **facts: Any) -> Snapshot:
    """A snapshot of the monitor as it stands."""
    known: dict[str, Any] = {
        "model_name": "qwen3-8b",
        "engine": "0",
        "version": "0.1.0",
        "vllm_version": "0.32.0",
        "unhashed": "head",
        "wall_time": time.time(),
        "capacity_blocks": monitor.capacity_blocks,
        "block_size": monitor.block_size,
        "block_bytes": 18 << 20,
        "modelled": True,
        "counters": monitor.counters,
        "index_blocks": monitor.index_blocks,
        "index_bytes": monitor.index_bytes,
    }
    return Snapshot(**known | facts)

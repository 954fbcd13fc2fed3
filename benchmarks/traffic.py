"""Multi-turn traffic for the benchmarks: conversations that grow, at a fixed rate of requests in virtual time."""

import hashlib
import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK_SIZE = 128
TURNS = 10
THINK_S = 20.0
"""Mean think time: with it and the rate, how many conversations are under way."""


@dataclass(frozen=True)
class Turn:
    """One prompt."""

    time: float
    """Virtual seconds."""

    name: str
    blocks: list[bytes]
    """Chained ids of its full blocks."""

    tokens: int


@dataclass(frozen=True)
class Traffic:
    """Poisson conversation starts, exponential think times, `TURNS` turns that each add as many blocks."""

    mean_blocks: int
    """Blocks of a prompt, on average."""

    rate: float
    """Requests per second."""

    @property
    def first_blocks(self) -> int:
        return self.mean_blocks - (TURNS - 1) * self.grown_blocks // 2

    @property
    def grown_blocks(self) -> int:
        return max(self.mean_blocks // 10, 1)

    @property
    def capacity_blocks(self) -> int:
        """Half of what the conversations under way have written: hits, misses and evictions all happen."""
        under_way = self.rate / TURNS * (TURNS - 1) * THINK_S
        return int(under_way * self.mean_blocks / 2)

    def turns(self, seed: int) -> Iterator[Turn]:
        """Prompts in order of time, without end."""
        random_ = random.Random(seed)
        start = 0.0
        number = 0
        due: list[tuple[float, int, int, list[bytes]]] = []
        while True:
            while not due or due[0][0] >= start:
                most = self.first_blocks + (TURNS - 1) * self.grown_blocks
                heapq.heappush(due, (start, number, 0, _chain(f"{seed}-{number}", most)))
                number += 1
                start += random_.expovariate(self.rate / TURNS)
            time, conversation, turn, chain = heapq.heappop(due)
            full = self.first_blocks + turn * self.grown_blocks
            yield Turn(time, f"{conversation}-{turn}", chain[:full], full * BLOCK_SIZE + 17)
            if turn + 1 < TURNS:
                heapq.heappush(due, (time + random_.expovariate(1 / THINK_S), conversation, turn + 1, chain))


def _chain(name: str, blocks: int) -> list[bytes]:
    """Digests as long as vLLM's: 32 bytes."""
    head = hashlib.blake2b(name.encode(), digest_size=28).digest()
    return [head + position.to_bytes(4, "big") for position in range(blocks)]

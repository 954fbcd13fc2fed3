"""The prefix tree's promises, kept by the dullest means: one entry a block, one list in the order of release."""

from __future__ import annotations

from dataclasses import dataclass, field

Id = tuple[str, ...]


def chain(path: str) -> list[Id]:
    """Chained ids: the whole prefix."""
    return [tuple(path[: depth + 1]) for depth in range(len(path))]


@dataclass
class Block:
    users: int = 0
    released: float = 0.0
    lost: bool = False


@dataclass
class Seen:
    """Of each leading block seen before: idle reuse_time (0: held), and blocks released since (-1: held)."""

    reuse_times: list[float] = field(default_factory=list)
    distances: list[int] = field(default_factory=list)
    lost: int = 0


class BlockReference:
    def __init__(self) -> None:
        self.blocks: dict[Id, Block] = {}
        self.stack: list[Id] = []  # the last one was released last

    def admit(self, path: list[Id], time: float) -> Seen:
        seen = Seen()
        for name in path:
            block = self.blocks.get(name)
            if block is None:
                break
            if block.users:
                seen.reuse_times.append(0.0)
                seen.distances.append(-1)
            elif block.lost:
                seen.lost += 1
            else:
                seen.reuse_times.append(max(time - block.released, 1e-9))
                seen.distances.append(len(self.stack) - 1 - self.stack.index(name))
        self.hold(path)
        return seen

    def hold(self, path: list[Id]) -> None:
        for name in path:
            block = self.blocks.setdefault(name, Block())
            if name in self.stack:
                self.stack.remove(name)
            block.users += 1

    def release(self, path: list[Id], time: float) -> None:
        for name in reversed(path):
            block = self.blocks[name]
            block.users -= 1
            block.released = time
            block.lost = False
            if not block.users:
                self.stack.append(name)

    def cut(self, path: list[Id], count: int) -> int:
        """Forget the released path's blocks from the last one back to ``count``, up to one that somebody else needs."""
        forgotten = 0
        for name in reversed(path[count:]):
            if self.blocks[name].users or any(
                len(other) > len(name) and other[: len(name)] == name for other in self.blocks
            ):
                break
            del self.blocks[name]
            if name in self.stack:
                self.stack.remove(name)
            forgotten += 1
        return forgotten

    def reset(self) -> None:
        self.stack.clear()
        for block in self.blocks.values():
            block.lost = not block.users

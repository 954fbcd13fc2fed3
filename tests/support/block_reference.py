"""The prefix tree's promises, kept by the dullest means: one entry per block, one list in the order of release."""

from __future__ import annotations

from dataclasses import dataclass, field

Id = tuple[str, ...]


def chain(path: str) -> list[Id]:
    """Chained ids: the whole prefix."""
    return [tuple(path[: depth + 1]) for depth in range(len(path))]


@dataclass(eq=False)
class Block:
    """One set of physical blocks: a content may have several, in the order of writing."""

    users: set[int] = field(default_factory=set)
    released: float = 0.0
    lost: bool = False


@dataclass
class Seen:
    """Of each leading block seen before: its reuse time (0: held), and blocks released since (-1: held)."""

    reuse_times: list[float] = field(default_factory=list)
    distances: list[int] = field(default_factory=list)
    lost: int = 0


class BlockReference:
    """A cache that never evicts."""

    def __init__(self) -> None:
        self.blocks: dict[Id, list[Block]] = {}
        self.stack: list[Block] = []  # the last one was released last

    @property
    def in_use(self) -> int:
        return sum(bool(block.users) for copies in self.blocks.values() for block in copies)

    def look_up(self, path: list[Id], time: float) -> Seen:
        seen = Seen()
        for name in path:
            copies = self.blocks.get(name)
            if copies is None:
                break
            if any(block.users for block in copies):
                seen.reuse_times.append(0.0)
                seen.distances.append(-1)
            elif all(block.lost for block in copies):
                seen.lost += 1
            else:
                youngest = max(copies, key=lambda block: self.stack.index(block) if block in self.stack else -1)
                seen.reuse_times.append(max(time - youngest.released, 1e-9))
                seen.distances.append(len(self.stack) - 1 - self.stack.index(youngest))
        return seen

    def hold(self, path: list[Id], user: int) -> None:
        """Use the first copy of each, and write what is new."""
        for name in path:
            block = self.blocks.setdefault(name, [Block()])[0]
            if block in self.stack:
                self.stack.remove(block)
            block.users.add(user)
            block.lost = False

    def write(self, path: list[Id], user: int) -> None:
        """Write each again, in a copy of its own unless what is there was lost."""
        for name in path:
            copies = self.blocks.get(name, [])
            if copies and not copies[0].lost:
                copies.append(Block({user}))
            else:
                self.hold([name], user)

    def release(self, path: list[Id], time: float, user: int) -> None:
        for name in reversed(path):
            for block in self.blocks[name]:
                if user in block.users:
                    block.users.remove(user)
                    block.released = time
                    if not block.users:
                        self.stack.append(block)

    def reset(self) -> None:
        self.stack.clear()
        for name, copies in self.blocks.items():
            first, *others = copies
            if not first.users:
                first.lost = True
            self.blocks[name] = [first, *(block for block in others if block.users)]
            if first.lost and len(self.blocks[name]) > 1:
                del self.blocks[name][0]

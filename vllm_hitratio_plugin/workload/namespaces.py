"""The same content cached again under another adapter or cache salt: blocks that sharing would save."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence


class Namespaces:
    """Prompts by content alone, to see what another namespace has cached already.

    Memory: at most ``limit`` prompts of 8 bytes a block; the least recently seen first block is forgotten first.
    """

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._prompts: OrderedDict[Hashable, dict[Hashable, Sequence[Hashable]]] = OrderedDict()

    def duplicated(self, namespace: Hashable, content: Sequence[Hashable]) -> int:
        """Leading blocks of this prompt that another namespace has cached; the prompt is remembered.

        Args:
            namespace: Adapter and salt; None is a namespace, too.
            content: Chained ids of the prompt's full blocks that know of no namespace.
        """
        if not content:
            return 0
        copies = self._prompts.setdefault(content[0], {})
        self._prompts.move_to_end(content[0])
        found = max(
            (_common(content, other) for name, other in copies.items() if name != namespace),
            default=0,
        )
        if len(copies) < 16 or namespace in copies:
            copies[namespace] = content
        if len(self._prompts) > self._limit:
            self._prompts.popitem(last=False)
        return found


def _common(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    shared = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        shared += 1
    return shared

"""The same content cached again under another adapter or cache salt: blocks that sharing would save."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from vllm_hitratio_plugin.index.common_prefix import common_prefix

#: Namespaces remembered of one first block.
_COPIES = 16


class Namespaces:
    """Prompts by content alone, to see what another namespace has cached already.

    Memory: at most ``limit_blocks`` ids, some 40 bytes each, of at most ``_COPIES`` namespaces per first block; the
    least recently seen first block is forgotten first.
    """

    def __init__(self, limit_blocks: int = 262_144) -> None:
        self._limit_blocks = limit_blocks
        #: Ids remembered.
        self.blocks = 0
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
            (
                common_prefix(other, content, 0, min(len(other), len(content)))
                for name, other in copies.items()
                if name != namespace
            ),
            default=0,
        )
        if len(copies) < _COPIES or namespace in copies:
            self.blocks += len(content) - len(copies.get(namespace, ()))
            copies[namespace] = content
        while self.blocks > self._limit_blocks:
            _, forgotten = self._prompts.popitem(last=False)
            self.blocks -= sum(map(len, forgotten.values()))
        return found

"""Requests from their admission to their release: what of a prompt is known, and what the cache keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.index.conversation import Conversation, NamedConversations
from vllm_hitratio_plugin.index.match import Match
from vllm_hitratio_plugin.index.namespaces import Namespaces
from vllm_hitratio_plugin.index.node import Node
from vllm_hitratio_plugin.index.prefix_tree import PrefixTree


class Admissions:
    """The index as requests go through it.

    Args:
        block_size: Tokens per block.
        unhashed: Where a released block without a hash goes, "tail" or "head" (docs/model.md#unhashed-blocks).
        dropped_blocks: Blocks that every hit gives up (1 with EAGLE or MTP speculative decoding).
        limit_blocks: Blocks remembered beyond those in use.
    """

    def __init__(self, *, block_size: int, unhashed: str, dropped_blocks: int, limit_blocks: int) -> None:
        self.tree = PrefixTree(limit_blocks)
        self._block_size = block_size
        self._unhashed = unhashed
        self._dropped_blocks = dropped_blocks
        self._named = NamedConversations()
        self._namespaces: Namespaces | None = None
        # By request: the deepest node, whether a block without a hash follows, and how many blocks were known before.
        self._running: dict[Hashable, tuple[Node | None, int, int]] = {}
        # Blocks without a hash in use, and free ones at the head of the queue: no room for cached content either way.
        self._unhashed_in_use = 0
        self._empty = 0

    def __len__(self) -> int:
        """Requests admitted and not yet released."""
        return len(self._running)

    def admit(self, access: Access) -> Match | None:
        """Look a prompt up and remember it; its runs are trimmed to what a lookup may return.

        Returns None for a request that is admitted already.
        """
        key, tokens = access.key, access.tokens
        if key in self._running:
            return None
        full = tokens // self._block_size
        unhashed = 1 if tokens % self._block_size else 0
        tree = self.tree
        in_use = access.in_use_blocks
        if in_use is None:
            in_use = tree.in_use_blocks + self._unhashed_in_use
        match = tree.admit(access.blocks, full, access.time)
        match.in_use_blocks = in_use
        known = match.known
        self._running[key] = (match.node, unhashed, known + match.lost)
        self._unhashed_in_use += unhashed
        if not access.counted:
            return match
        # Neither the last token nor the dropped blocks can be hit (docs/model.md#the-last-token).
        most = (tokens - 1) // self._block_size
        reusable = (known if known < most else most) - self._dropped_blocks
        if reusable < known:
            reusable = reusable if reusable > 0 else 0
            match.trim(known - reusable)
        if access.conversation is not None:
            match.conversation = self._named.get(access.conversation)
        elif match.conversation is None:
            match.conversation = Conversation()
        empty = match.empty_blocks = self._empty
        if empty:
            # Empty blocks are allocated first.
            left = empty - (full + unhashed - reusable)
            self._empty = left if left > 0 else 0
        if access.content is not None and not known:
            match.duplicated_blocks = self._duplicated(access.namespace, access.content)
        return match

    def release(self, time: float, key: Hashable, blocks: Sequence[Hashable], cached: int | None) -> int:
        """The request released its blocks; a key that is not known is ignored.

        Args:
            time: Seconds.
            key: As admitted.
            blocks: Chained ids of what the request cached, where its answer is cached too
                (docs/model.md#cached-answers).
            cached: How many of them; fewer than the prompt's full blocks where its prefill was not finished. None: the
                prompt's.

        Returns:
            Blocks written beyond those of the prompt; negative where part of the prompt was never computed.
        """
        running = self._running.pop(key, None)
        if running is None:
            return 0
        node, unhashed, before = running
        self._unhashed_in_use -= unhashed
        prompt, conversation = 0, None
        if node is not None:
            prompt, conversation = node.end, node.conversation
            if conversation is not None:
                conversation.released = time
        if cached is None:
            cached = prompt
        if cached > prompt:
            node = self.tree.extend(node, blocks, cached)
            if conversation is not None:
                conversation.cached = cached
        if self._unhashed == "head":
            self._empty += unhashed
            unhashed = 0
        self.tree.release(node, time, unhashed)
        if cached < prompt and node is not None:
            return -self._unfinished(node, max(cached, before))
        return cached - prompt

    def _unfinished(self, node: Node, left: int) -> int:
        """A prompt's prefill was broken off: what lies beyond its first ``left`` blocks was never there."""
        conversation = node.conversation
        dropped = self.tree.cut(node, left)
        if dropped and conversation is not None:
            conversation.cut(left)
        return dropped

    def _duplicated(self, namespace: Hashable, content: Callable[[], Sequence[Hashable]]) -> int:
        # Content is compared only once namespaces are in use: until then nothing can be cached twice.
        if namespace is not None and self._namespaces is None:
            self._namespaces = Namespaces()
        return 0 if self._namespaces is None else self._namespaces.duplicated(namespace, content())

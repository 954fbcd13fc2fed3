"""Requests from their admission to their release: what of a prompt is known, and what the cache keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.index.common_prefix import common_prefix
from vllm_hitratio_plugin.index.conversation import Conversation, NamedConversations
from vllm_hitratio_plugin.index.match import Match
from vllm_hitratio_plugin.index.namespaces import Namespaces
from vllm_hitratio_plugin.index.node import Node
from vllm_hitratio_plugin.index.prefix_tree import PrefixTree


class Running:
    """A request that uses blocks.

    Attributes:
        ids: Chained ids of the prompt's full blocks; there may be more of them.
        full: Full blocks of the prompt.
        cached: Blocks that can be hit so far: as many as were computed or loaded.
        allocated: Blocks it uses, those without a hash included.
        node: The deepest node; None without a cached block.
        conversation: The conversation whose turn it is; None for a request that is not counted.
    """

    __slots__ = ("allocated", "cached", "conversation", "full", "ids", "node")

    def __init__(self, ids: Sequence[Hashable], full: int, cached: int, allocated: int) -> None:
        self.ids = ids
        self.full = full
        self.cached = cached
        self.allocated = allocated
        self.node: Node | None = None
        self.conversation: Conversation | None = None


class Admissions:
    """The index as requests go through it.

    Args:
        block_size: Tokens per block.
        capacity_blocks: N, blocks the cache can hold.
        unhashed: Where a released block without a hash goes, "tail" or "head" (docs/model.md#unhashed-blocks).
        dropped_blocks: Blocks that every hit gives up (1 with EAGLE or MTP speculative decoding).
        limit_blocks: Blocks remembered beyond those in use.
    """

    def __init__(
        self, *, block_size: int, capacity_blocks: int, unhashed: str, dropped_blocks: int, limit_blocks: int
    ) -> None:
        self.tree = PrefixTree(limit_blocks)
        self._block_size = block_size
        self._capacity_blocks = capacity_blocks
        self._unhashed = unhashed
        self._dropped_blocks = dropped_blocks
        self._named = NamedConversations()
        self._namespaces: Namespaces | None = None
        self._running: dict[Hashable, Running] = {}
        # Those whose prompt is not computed to its end.
        self._prefilling: dict[Hashable, Running] = {}
        # Blocks without a hash in use, and free ones at the head of the queue: no room for cached content either way.
        self._unhashed_in_use = 0
        self._empty = 0
        # Blocks in use that answers under way took: seen in the total, assigned at the release.
        self._answering = 0

    def __len__(self) -> int:
        """Requests admitted and not yet released."""
        return len(self._running)

    def admit(self, access: Access) -> Match | None:
        """Look a prompt up and remember it; its runs are trimmed to what a lookup may return.

        Returns None for a request that is admitted already: its prefill goes on.
        """
        key, tokens, ids, computed = access.key, access.tokens, access.blocks, access.computed_tokens
        if computed is None or computed > tokens:
            computed = tokens
        if key in self._running:
            self.progress(key, computed, access.in_use_blocks)
            return None
        in_use = self._observe(access.in_use_blocks)
        block_size, tree, empty = self._block_size, self.tree, self._empty
        full = tokens // block_size
        cached = computed // block_size
        match = tree.look_up(ids, full, access.time)
        match.in_use_blocks, match.empty_blocks = in_use, empty
        # Neither the last token nor the dropped blocks can be hit (docs/model.md#the-last-token).
        known, most = match.known, (tokens - 1) // block_size
        reusable = (known if known < most else most) - self._dropped_blocks
        if reusable < 0 or access.skipped:
            reusable = 0
        hit_tokens = reusable * block_size if access.hit_tokens is None else access.hit_tokens
        # What a connector still loads is allocated, and cannot be hit yet.
        loaded = hit_tokens + access.external_tokens
        allocated = -(-(computed if computed > loaded else loaded) // block_size)
        running = self._running[key] = Running(ids, full, cached, allocated)
        # Empty blocks are allocated first.
        new = allocated - hit_tokens // block_size
        self._empty = empty - new if empty > new else 0
        self._unhashed_in_use += allocated - cached
        if access.counted and self._prefilling:
            match.in_flight_blocks = max(self._in_flight(ids, most) - self._dropped_blocks, 0)
        if cached == full and reusable == known and not match.copied:
            running.node = tree.hold(match.node, ids, full)
        else:
            if cached < full:
                self._prefilling[key] = running
            hits = reusable if reusable < cached else cached
            before, room = tree.in_use_blocks, self._capacity_blocks - in_use - empty
            node = tree.hit(ids, hits, room)
            idle = tree.in_use_blocks - before - max(hits - hit_tokens // block_size, 0)
            running.node = tree.write(node, ids, cached, key, room - idle - max(new - empty, 0))
        if not access.counted:
            running.conversation = match.conversation if access.resumed else None
            return match
        if reusable < known:
            match.trim(known - reusable)
        if access.conversation is not None:
            match.conversation = self._named.get(access.conversation)
        elif match.conversation is None:
            match.conversation = Conversation()
        running.conversation = match.conversation
        if cached == full and running.node is not None:
            running.node.conversation = match.conversation
        if access.content is not None and not known:
            match.duplicated_blocks = self._duplicated(access.namespace, access.content)
        return match

    def progress(self, key: Hashable, computed_tokens: int, in_use_blocks: int | None) -> None:
        """More of an admitted prompt was computed or loaded; a key that is not known is ignored.

        Args:
            key: As admitted.
            computed_tokens: Tokens that can be hit from now on.
            in_use_blocks: Blocks that all requests used just before; None where unknown.
        """
        running = self._running.get(key)
        if running is None:
            return
        in_use = self._observe(in_use_blocks)
        cached = min(computed_tokens // self._block_size, running.full)
        allocated = max(-(-computed_tokens // self._block_size), running.allocated)
        room = self._capacity_blocks - in_use - max(self._empty, allocated - running.allocated)
        self._extend(key, running, running.ids, cached, allocated, room)

    def release(
        self,
        time: float,
        key: Hashable,
        ids: Sequence[Hashable] = (),
        cached: int = 0,
        allocated: int = 0,
        in_use_blocks: int | None = None,
    ) -> int:
        """The request released its blocks; a key that is not known is ignored.

        Args:
            time: Seconds.
            key: As admitted.
            ids: Chained ids of what the request cached, where its answer is cached too
                (docs/model.md#cached-answers).
            cached: How many of them; only what lies beyond the progress so far matters.
            allocated: Blocks it used, those without a hash included, if more than so far.
            in_use_blocks: Blocks that all requests used just before; None where unknown.

        Returns:
            Blocks written beyond those of the prompt; negative where part of the prompt was never computed.
        """
        running = self._running.pop(key, None)
        if running is None:
            return 0
        in_use = self._observe(in_use_blocks)
        if cached > running.cached or allocated > running.allocated:
            # What the answer took is in the total already.
            taken = min(max(allocated, cached, running.allocated) - running.allocated, self._answering)
            self._answering -= taken
            self._unhashed_in_use += taken
            running.allocated += taken
            cached, allocated = max(cached, running.cached), max(allocated, cached, running.allocated)
            room = self._capacity_blocks - in_use - max(self._empty - allocated + running.allocated, 0)
            self._extend(key, running, ids, cached, allocated, room)
        cached, full, conversation = running.cached, running.full, running.conversation
        if conversation is not None:
            conversation.released = time
            if cached > full:
                conversation.cached = cached
        if cached < full:
            del self._prefilling[key]
            if conversation is not None:
                conversation.cut(cached)
                if running.node is not None and running.node.conversation is None:
                    running.node.conversation = conversation
        unhashed = running.allocated - cached
        if unhashed:
            self._unhashed_in_use -= unhashed
            if self._unhashed == "head":
                self._empty += unhashed
                unhashed = 0
        self.tree.release(running.node, time, unhashed, key)
        return cached - full

    def _observe(self, in_use_blocks: int | None) -> int:
        """Blocks in use, of which answers may have taken some since: empty ones first."""
        known = self.tree.in_use_blocks + self._unhashed_in_use
        if in_use_blocks is None:
            return known
        answering = in_use_blocks - known
        if answering < 0:
            answering = 0
        if answering != self._answering:
            if answering > self._answering:
                self._empty = max(self._empty - answering + self._answering, 0)
            self._answering = answering
        return in_use_blocks

    def _extend(
        self, key: Hashable, running: Running, ids: Sequence[Hashable], cached: int, allocated: int, room: int
    ) -> None:
        """A request has ``cached`` blocks that can be hit, of ``allocated``."""
        new, written = allocated - running.allocated, cached - running.cached
        self._empty = max(self._empty - new, 0)
        running.allocated = allocated
        self._unhashed_in_use += new
        if written <= 0:
            return
        before, conversation = running.cached, running.conversation
        node = running.node = self.tree.write(running.node, ids, cached, key, room)
        running.cached = cached
        self._unhashed_in_use -= written
        if before < running.full <= cached:
            del self._prefilling[key]
            if node is not None and conversation is not None:
                node.conversation = conversation

    def _in_flight(self, ids: Sequence[Hashable], most: int) -> int:
        """Leading blocks, at most ``most``, that a prompt whose prefill is under way has too."""
        longest = 0
        for other in self._prefilling.values():
            limit = min(other.full, most)
            if limit > longest and other.ids[longest] == ids[longest]:
                longest = common_prefix(other.ids, ids, 0, limit)
        return longest

    def _duplicated(self, namespace: Hashable, content: Callable[[], Sequence[Hashable]]) -> int:
        # Content is compared only once namespaces are in use: until then nothing can be cached twice.
        if namespace is not None and self._namespaces is None:
            self._namespaces = Namespaces()
        return 0 if self._namespaces is None else self._namespaces.duplicated(namespace, content())

"""What the index knew of one prompt at its lookup."""

from __future__ import annotations

from vllm_hitratio_plugin.index.conversation import Conversation
from vllm_hitratio_plugin.index.node import Node


class Match:
    """One prompt against everything remembered; runs are in the order of the prompt.

    Attributes:
        reuse_times: Seconds of each run of known blocks, from its release to this lookup; 0 exactly where it is in use.
            Non-decreasing along a prompt up to the noise of concurrent releases.
        lengths: Blocks of each run.
        distances: Stack distance of each run: blocks released since its first one was, other than those in use; -1
            where it is in use.
        known: Blocks seen before and still reusable: the sum of ``lengths``.
        lost: Blocks seen before, in a cache that was reset since.
        node: The deepest node of what is remembered; None where nothing is.
        copied: Some of the content is there in several copies.
        conversation: The conversation that this prompt continues, if any.
        forked: The prompt left a remembered run in its middle.
        branched: It left a history where others go on differently, be that place new or known.
        in_use_blocks: Blocks that other requests used just before.
        empty_blocks: Free blocks without content, which are allocated first.
        duplicated_blocks: Leading blocks whose content is cached under another adapter or salt.
        in_flight_blocks: Leading blocks shared with a prompt whose prefill is under way, as far as a lookup may return
            them; 0 where there is none.
    """

    __slots__ = (
        "branched",
        "conversation",
        "copied",
        "distances",
        "duplicated_blocks",
        "empty_blocks",
        "forked",
        "in_flight_blocks",
        "in_use_blocks",
        "known",
        "lengths",
        "lost",
        "node",
        "reuse_times",
    )

    def __init__(self) -> None:
        self.reuse_times: list[float] = []
        self.lengths: list[int] = []
        self.distances: list[int] = []
        self.known = 0
        self.lost = 0
        self.node: Node | None = None
        self.conversation: Conversation | None = None
        self.forked = False
        self.branched = False
        self.copied = False
        self.in_use_blocks = 0
        self.empty_blocks = 0
        self.duplicated_blocks = 0
        self.in_flight_blocks = 0

    def add(self, blocks: int, reuse_time: float, distance: int) -> None:
        """The next run; arguments as the attributes."""
        self.known += blocks
        if self.reuse_times and self.reuse_times[-1] == reuse_time:
            last = self.distances[-1]
            if distance == (last if last < 0 else last + self.lengths[-1]):
                self.lengths[-1] += blocks
                return
        self.reuse_times.append(reuse_time)
        self.lengths.append(blocks)
        self.distances.append(distance)

    def trim(self, excess: int) -> None:
        """Take the last ``excess`` blocks off the known runs; ``known`` stays."""
        while excess > 0:
            if self.lengths[-1] > excess:
                self.lengths[-1] -= excess
                break
            excess -= self.lengths.pop()
            self.reuse_times.pop()
            self.distances.pop()

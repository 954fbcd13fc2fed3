"""One admitted request: all that the monitor needs to know of it.

The live hook makes it from vLLM's ``Request``, the replays make it from a trace, so that one estimator serves two
sources.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple


class Access(NamedTuple):
    """One admitted request and what the cache served of its prompt."""

    time: float
    """Seconds, any monotonic origin: the moment of the lookup that led to the admission."""

    key: Hashable
    """Names the request until it is released."""

    tokens: int
    """Prompt tokens L, at least 1."""

    blocks: Sequence[Hashable]
    """Chained ids of the prompt's full blocks: equal ids mean equal whole prefixes. At least
    ``tokens // block_size`` of them; more (blocks of a growing answer) are ignored."""

    hit_tokens: int | None = None
    """Tokens served from the local prefix cache; None where they were not observed (pure prediction)."""

    external_tokens: int = 0
    """Tokens loaded by a KV connector, beyond the local hit."""

    in_use_blocks: int | None = None
    """Blocks that other requests used just before this admission; None where unknown."""

    conversation: str | None = None
    """Explicit conversation id (already a digest in the live path); None: linked by its prefix chain."""

    counted: bool = True
    """False for what is not a new request but allocates blocks all the same: a preempted request that comes back, one
    that may not read the cache."""

    resumed: bool = False
    """A preempted request that comes back (then ``counted`` is False, too)."""

    skipped: bool = False
    """A request that skips the lookup by design (then ``counted`` is False, too)."""

    namespace: Hashable = None
    """Adapter and cache salt, as far as they keep equal content apart; None: neither."""

    content: Callable[[], Sequence[Hashable]] | None = None
    """Chained ids of the prompt's full blocks that do not depend on the namespace; called only for content not seen
    before in traffic that uses namespaces."""

    declared_turn: int | None = None
    """The turn's number j in its conversation, from 1, as the client counts; None where it does not say."""

"""Every prompt block has one fate (MODEL section 6): what became of it, and why."""

from __future__ import annotations

#: (fate, reason) of each column of a ledger. The fates add up to the prompt blocks, always.
COLUMNS = (
    ("hit", "local"),
    ("partial", "tail"),
    ("partial", "dropped"),
    ("cold", "new"),
    ("cold", "diverged"),
    ("cold", "namespace"),
    ("capacity", "evicted"),
    ("unexplained", "missing"),
    ("unexplained", "reset"),
)
FATES = ("hit", "cold", "partial", "capacity", "unexplained")
HIT, TAIL, DROPPED, NEW, DIVERGED, NAMESPACE, EVICTED, MISSING, RESET = range(len(COLUMNS))

Ledger = list[int]


def empty() -> Ledger:
    """A ledger of no prompts."""
    return [0] * len(COLUMNS)


def enter(
    ledger: Ledger,
    *,
    prompt: int,
    most: int,
    known: int,
    reusable: int,
    hit: int,
    shadow: int,
    lost: int,
    diverged: int,
    namespace: int,
) -> None:
    """Enter one prompt.

    Args:
        ledger: Changed in place.
        prompt: R, its blocks.
        most: Blocks that a lookup could return: not the partly filled one, nor the last token's.
        known: Blocks seen before, of the first ``most``.
        reusable: Of those, the ones a lookup may return (fewer with speculative decoding).
        hit: Blocks the engine returned.
        shadow: Blocks an exact LRU of the same capacity would have returned, at most ``reusable``.
        lost: Blocks seen before the last reset of the cache.
        diverged: Blocks where the conversation's previous prompt had others; negative where it had fewer.
        namespace: Blocks whose content is cached under another adapter or salt.
    """
    hit = min(hit, most)
    covered = max(reusable, hit)
    dropped = max(known - covered, 0)
    ledger[HIT] += hit
    ledger[TAIL] += prompt - most
    if reusable > hit:
        ledger[EVICTED] += reusable - max(hit, shadow)
        ledger[MISSING] += max(shadow - hit, 0)
    rest = most - covered - dropped
    if dropped:
        ledger[DROPPED] += dropped
    if lost > 0 and rest:
        taken = min(lost, rest)
        ledger[RESET] += taken
        rest -= taken
    if diverged > 0 and rest:
        taken = min(diverged, rest)
        ledger[DIVERGED] += taken
        rest -= taken
    if namespace > 0 and rest:
        taken = min(namespace, rest)
        ledger[NAMESPACE] += taken
        rest -= taken
    ledger[NEW] += rest

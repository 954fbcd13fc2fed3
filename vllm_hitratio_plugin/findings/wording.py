"""Numbers as they stand in sentences."""

from __future__ import annotations


def percent(share: float) -> str:
    """A ratio as a percentage: two digits that count, never a rounded 0 or 100."""
    value = 100 * share
    if value == 0 or abs(value) >= 9.95:
        digits = 1 if 99.5 <= abs(value) < 100 else 0
    else:
        digits = 1 if abs(value) >= 0.95 else 2
    return f"{value:.{digits}f} %"


def points(difference: float) -> str:
    """A difference of ratios, in hundredths."""
    return f"{100 * difference:.1f} points"


def count(number: float, noun: str) -> str:
    """A whole number of things."""
    whole = round(number)
    return f"{whole:,} {noun}" if whole == 1 or noun.endswith("s") else f"{whole:,} {noun}s"


def capacity(blocks: float, block_bytes: int | None) -> str:
    """Blocks, and their memory where it is known."""
    words = count(blocks, "block")
    if block_bytes is None:
        return words
    size, unit = blocks * block_bytes / 2**30, "GiB"
    if size < 0.1:
        size, unit = size * 1024, "MiB"
    return f"{words} ({size:,.{0 if size >= 100 else 1}f} {unit} a worker)"


def duration(seconds: float) -> str:
    """A time in the unit a person would use."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"

"""Numbers as they stand in sentences."""

from __future__ import annotations


def percent(share: float) -> str:
    """A ratio as a percentage: one digit behind the point, two where that would round it to 0 or to 100."""
    value = 100 * share
    text = f"{value:.1f}"
    if (text in ("0.0", "-0.0") and value) or (text == "100.0" and value != 100):
        text = f"{value:.2f}"
    return f"{text.removesuffix('.0')} %"


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
    if seconds < 570:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"

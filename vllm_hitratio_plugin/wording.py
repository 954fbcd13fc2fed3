"""Numbers in words: how every sentence, table and page writes ratios, sizes and times."""

from __future__ import annotations

#: In a table, for what was not measured or does not exist.
NONE = "–"


def percent(share: float) -> str:
    """A ratio as a percentage, in a sentence: one decimal, two where one would round it to 0 or to 100.

    Example:
        >>> percent(0.143), percent(0.75), percent(0.0004)
        ('14.3 %', '75 %', '0.04 %')
    """
    value = 100 * share
    text = f"{value:.1f}"
    if (text in ("0.0", "-0.0") and value) or (text == "100.0" and value != 100):
        text = f"{value:.2f}"
    return f"{text.removesuffix('.0')} %"


def fixed_percent(share: float | None, digits: int = 1, none: str = NONE) -> str:
    """A ratio as a percentage with a fixed number of decimals, for columns of figures.

    Example:
        >>> fixed_percent(0.75), fixed_percent(None)
        ('75.0 %', '–')
    """
    return none if share is None else f"{100 * share:.{digits}f} %"


def points(difference: float) -> str:
    """A difference of two ratios, in percentage points."""
    return f"{100 * difference:.1f} points"


def signed_points(difference: float | None, digits: int = 2, none: str = NONE) -> str:
    """A difference of two ratios in percentage points, with its sign and without the unit, for columns of figures."""
    return none if difference is None else f"{100 * difference:+.{digits}f}"


def count(number: float, noun: str) -> str:
    """A number of things; ``noun`` is the singular, or a plural that ends in s.

    Example:
        >>> count(1, "block"), count(2275, "block")
        ('1 block', '2,275 blocks')
    """
    whole = round(number)
    return f"{whole:,} {noun}" if whole == 1 or noun.endswith("s") else f"{whole:,} {noun}s"


def large_count(number: float | None, none: str = NONE) -> str:
    """A large number, in thousands or millions.

    Example:
        >>> large_count(2_345_000), large_count(84_000)
        ('2.3 M', '84 k')
    """
    if number is None:
        return none
    return f"{number / 1e6:,.1f} M" if number >= 1e6 else f"{number / 1e3:,.0f} k"


def memory(size: float) -> str:
    """Bytes in GiB, or in MiB below a tenth of that.

    Example:
        >>> memory(40 * 2**30), memory(250 * 2**30), memory(4.7 * 2**20)
        ('40.0 GiB', '250 GiB', '4.7 MiB')
    """
    value, unit = size / 2**30, "GiB"
    if value < 0.1:
        value, unit = value * 1024, "MiB"
    return f"{value:,.{0 if value >= 100 else 1}f} {unit}"


def capacity(blocks: float, block_bytes: int | None) -> str:
    """A number of blocks, and their memory where the size of a block is known.

    Example:
        >>> capacity(2275, 18 << 20)
        '2,275 blocks (40.0 GiB per worker)'
    """
    words = count(blocks, "block")
    return words if block_bytes is None else f"{words} ({memory(blocks * block_bytes)} per worker)"


def duration(seconds: float) -> str:
    """A time in the unit that a person would use.

    Example:
        >>> duration(2.345), duration(84), duration(600), duration(9000), duration(1e6)
        ('2.3 s', '84 s', '10 min', '2.5 h', '11.6 days')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 570:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"

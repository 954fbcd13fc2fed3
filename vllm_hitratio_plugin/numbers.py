"""Numbers out of text, checked against a range: the one reading of what people type in options and variables."""

import math
from contextlib import suppress


def number(
    text: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    whole: bool = False,
) -> float | None:
    """The finite number that ``text`` says; None where it says none, or one outside the range.

    Args:
        text: Decimal, with or without an exponent.
        least, most: Bounds that are allowed themselves.
        above, below: Bounds that are not.
        whole: Only integers, which come back as ``int``.

    Example:
        >>> number("1e3", whole=True), number("0.5", above=0, below=1), number("soon"), number("7", most=5)
        (1000, 0.5, None, None)
    """
    value: float | None = None
    for kind in (int, float) if whole else (float,):
        with suppress(ValueError):
            value = kind(text)
            break
    # Written so that nan fails too.
    if value is None or not (-math.inf < value < math.inf and least <= value <= most and above < value < below):
        return None
    if not whole:
        return value
    return int(value) if value == int(value) else None


def positives(parts: list[str], count: int) -> list[float] | None:
    """``count`` finite numbers above 0, one per part; None where they are not."""
    values = [number(part, above=0) for part in parts]
    return [value for value in values if value is not None] if len(values) == count and None not in values else None


MOST = 10**15
"""Of anything counted: floating point is exact up to there."""

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def memory(text: str) -> float | None:
    """Bytes, above 0: a number, or one with KiB, MiB or GiB; None for anything else.

    Example:
        >>> memory("18MiB"), memory("512"), memory("18 apples")
        (18874368.0, 512.0, None)
    """
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    value = number(text.removesuffix(unit), above=0)
    return None if value is None else value * _UNITS.get(unit, 1)

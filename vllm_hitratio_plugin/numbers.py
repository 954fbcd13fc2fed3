"""Numbers out of text, checked against a range: the one reading of what people type in options and variables."""

import math


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
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    # Written so that nan fails too.
    if not (math.isfinite(value) and least <= value <= most and above < value < below):
        return None
    if not whole:
        return value
    return int(value) if value.is_integer() else None


def positives(parts: list[str], count: int) -> list[float] | None:
    """``count`` finite numbers above 0, one per part; None where they are not."""
    values = [number(part, above=0) for part in parts]
    return [value for value in values if value is not None] if len(values) == count and None not in values else None

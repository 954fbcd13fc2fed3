"""Values that arguments take; each function raises what argparse turns into one sentence."""

import math
from argparse import ArgumentTypeError

MOST = 10**15
"""Of anything counted: floating point is exact up to there."""

_DAY = 86_400


def positive(text: str) -> float:
    """A finite number above 0."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"must be a positive number, not {text!r}")
    return value


def pause(text: str) -> float:
    """Seconds to wait: above 0, at most a day."""
    value = positive(text)
    if value > _DAY:
        raise ArgumentTypeError(f"must be at most {_DAY:,} s, not {text!r}")
    return value


def not_negative(text: str) -> float:
    """A finite number of at least 0."""
    value = _number(text)
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"must be a number of at least 0, not {text!r}")
    return value


def ratio(text: str) -> float:
    """A number between 0 and 1."""
    value = _number(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"must be between 0 and 1 (a ratio, not a percentage), not {text!r}")
    return value


def count(text: str) -> int:
    """An integer of at least 1."""
    value = _integer(text, 1)
    if value > MOST:
        raise ArgumentTypeError(f"must be at most {MOST:,}, not {text[:40]!r}")
    return value


def seed(text: str) -> int:
    """An integer of at least 0."""
    return _integer(text, 0)


def counts(text: str) -> list[int]:
    """Integers of at least 1, with commas between."""
    return [count(part) for part in text.split(",")]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a number, not {text!r}") from None


def _integer(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ArgumentTypeError(f"must be an integer of at least {least}, not {text!r}")
    return value

"""Values that arguments take; each function raises what argparse turns into one sentence."""

from argparse import ArgumentTypeError

from vllm_hitratio_plugin import numbers
from vllm_hitratio_plugin.numbers import MOST

_DAY = 86_400
_SHOWN = 40


def _must(value: float | None, be: str, text: str) -> float:
    if value is None:
        raise ArgumentTypeError(f"must be {be}, not {text[:_SHOWN]!r}")
    return value


def positive(text: str) -> float:
    """A finite number above 0."""
    return _must(numbers.number(text, above=0), "a positive number", text)


def pause(text: str) -> float:
    """Seconds to wait: above 0, at most a day."""
    positive(text)
    return _must(numbers.number(text, most=_DAY), f"at most {_DAY:,} s", text)


def not_negative(text: str) -> float:
    """A finite number of at least 0."""
    return _must(numbers.number(text, least=0), "a number of at least 0", text)


def ratio(text: str) -> float:
    """A number between 0 and 1."""
    return _must(numbers.number(text, least=0, most=1), "between 0 and 1 (a ratio, not a percentage)", text)


def memory(text: str) -> float:
    """Bytes: a number, or one with KiB, MiB or GiB."""
    return _must(numbers.memory(text), "a number of bytes, or one with KiB, MiB or GiB", text)


def count(text: str, least: int = 1, most: int = MOST) -> int:
    """An integer within a range."""
    _must(numbers.number(text, least=least, whole=True), f"an integer of at least {least}", text)
    return int(_must(numbers.number(text, most=most, whole=True), f"at most {most:,}", text))


def from_zero(text: str) -> int:
    """An integer of at least 0."""
    return count(text, 0)


def counts(text: str) -> list[int]:
    """Integers of at least 1, with commas between."""
    return [count(part) for part in text.split(",")]


def positives(text: str) -> list[float]:
    """Positive numbers with commas between."""
    return [positive(part) for part in text.split(",")]

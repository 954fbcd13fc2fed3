"""Results on stdout: JSON for programs, aligned text for people."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any


def print_json(value: object) -> None:
    """Print JSON that every reader takes: no NaN and no infinity, null instead."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print right-aligned columns under their names."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_facts(facts: Sequence[tuple[str, str, str]]) -> None:
    """Print (name, value, remark) lines."""
    names, values = max(len(fact[0]) for fact in facts), max(len(fact[1]) for fact in facts)
    for name, value, remark in facts:
        print(f"{name:<{names}}  {value:>{values}}  {remark}".rstrip())


def percent(value: float | None, digits: int = 2) -> str:
    """A ratio as a percentage; a dash where it was not measured."""
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def points(value: float | None) -> str:
    """A signed difference of ratios, in hundredths."""
    return "-" if value is None else f"{100 * value:+.2f}"


def seconds(value: float | None) -> str:
    """A duration; a dash where it was not measured or has no end."""
    return "-" if value is None or math.isinf(value) else f"{value:,.1f} s"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""Results on stdout: JSON for programs, aligned text for people."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_hitratio_plugin.wording import NONE


def print_json(value: object) -> None:
    """Print strict JSON: null instead of NaN and infinity."""
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


def seconds(value: float | None) -> str:
    """A duration with one decimal, for columns; a dash where it was not measured or has no end."""
    return NONE if value is None or math.isinf(value) else f"{value:,.1f} s"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""The sums of a window as a small JSON object: what what-ifs need of a live engine beyond its estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from vllm_hitratio_plugin.model.flow import Array, FlowSketch

#: Cells of (gap, run length) handed out at the most: the object stays below 32 kB.
MOST_CELLS = 512

_TABLES = ("cells", "turn_gaps", "lags", "sizes")
_WIDTH = 64  # run-length bins a gap bin, as the sketch numbers its cells


def to_record(sketch: FlowSketch) -> dict[str, Any]:
    """Every sum to six digits; tables by row, without their bin numbers except where those carry the meaning.

    More than ``MOST_CELLS`` cells are joined, neighbours in length first, then in gap; all sums stay.
    """
    record: dict[str, Any] = {}
    for item in fields(sketch):
        if item.name.startswith("_"):
            continue
        value = getattr(sketch, item.name)
        if item.name == "cells":
            value = _joined(value)
        elif item.name == "turn_gaps":
            value = value[:, value[1] > 0]
        record[item.name] = [_short_row(row) for row in value] if item.name in _TABLES else _short(value)
    return record


def from_record(record: Mapping[str, Any]) -> FlowSketch:
    """The inverse of :func:`to_record`; KeyError, TypeError or ValueError on anything else."""
    sketch = FlowSketch()
    for item in fields(sketch):
        if item.name.startswith("_"):
            continue
        value = record[item.name]
        if item.name not in _TABLES:
            setattr(sketch, item.name, math.nan if value is None else float(value))
            continue
        rows = len(getattr(sketch, item.name))
        table = np.array(value, dtype=float).reshape(rows, -1)
        if not np.isfinite(table).all():
            raise ValueError(f"{item.name} holds what is no number")
        setattr(sketch, item.name, table)
    return sketch


def _joined(cells: Array) -> Array:
    by_length = True
    gaps, lengths = cells[0] // _WIDTH, cells[0] % _WIDTH
    while cells.shape[1] > MOST_CELLS:
        # Gap 0 is a matter of its own: such a run is held.
        idle = gaps > 0
        if by_length:
            lengths = lengths // 2
        else:
            gaps = np.where(idle, 1 + (gaps - 1) // 2, 0)
        by_length = not by_length
        keys, index = np.unique(gaps * _WIDTH + lengths, return_inverse=True)
        cells = np.array([keys, *(np.bincount(index, weights=row, minlength=len(keys)) for row in cells[1:])])
        gaps, lengths = keys // _WIDTH, keys % _WIDTH
    return cells


def _short_row(values: Array) -> list[Any]:
    """Six digits, and no decimal point where all are whole."""
    with np.errstate(divide="ignore"):
        digits = np.where(values == 0, 0, 5 - np.floor(np.log10(np.abs(values))))
    scale = 10.0 ** np.abs(digits)
    rounded = np.where(digits >= 0, np.rint(values * scale) / scale, np.rint(values / scale) * scale)
    return (rounded.astype(np.int64) if (rounded == np.rint(rounded)).all() else rounded).tolist()  # type: ignore[no-any-return]


def _short(value: float) -> float | int | None:
    if math.isnan(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded == int(rounded) else rounded

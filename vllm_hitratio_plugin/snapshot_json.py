"""A snapshot as JSON and back. Reading is typed: a field of the wrong type is refused by name."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np

from vllm_hitratio_plugin.model.traffic import Array
from vllm_hitratio_plugin.snapshot import Snapshot

#: Rows of the table of runs that a snapshot carries at the most: its sums stay below 32 kB.
_MOST_RUN_ROWS = 512


def to_json(snapshot: Snapshot, **more: Any) -> bytes:
    """One line of JSON; ``more`` is added to it. Sums have six digits and at most ``_MOST_RUN_ROWS`` kinds of runs."""
    if snapshot.sums is not None:
        sums = replace(snapshot.sums, runs=snapshot.sums.runs.coarsened(_MOST_RUN_ROWS))
        snapshot = replace(snapshot, sums=sums)
    if not more:
        return _ENCODER.encode(snapshot)
    return _ENCODER.encode({**{item.name: getattr(snapshot, item.name) for item in fields(snapshot)}, **more})


def from_json(text: bytes | str) -> Snapshot:
    """The inverse of :func:`to_json`.

    Raises:
        ValueError: it is no snapshot; the message names the field.
    """
    if _TOO_LARGE.search(text.encode() if isinstance(text, str) else text):
        raise ValueError("a number is too large")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply to be a snapshot") from None


def _plain(value: Any) -> list[Any]:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"no JSON for {type(value).__name__}")
    with np.errstate(divide="ignore"):
        digits = np.where(value == 0, 0, 5 - np.floor(np.log10(np.abs(value))))
    scale = 10.0 ** np.abs(digits)
    rounded = np.where(digits >= 0, np.rint(value * scale) / scale, np.rint(value / scale) * scale)
    return (rounded.astype(np.int64) if (rounded == np.rint(rounded)).all() else rounded).tolist()  # type: ignore[no-any-return]


def _column(kind: Any, value: Any) -> Array:
    if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
        raise ValueError("a list of numbers is expected")
    return np.array(value, dtype=float)


#: A whole number that no float holds.
_TOO_LARGE = re.compile(rb"\d{300}")
_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_DECODER = msgspec.json.Decoder(Snapshot, dec_hook=_column)

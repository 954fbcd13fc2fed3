"""YAML that a person can read, without a dependency: the few shapes the generated files need.

Long texts and texts of several lines become block scalars, short lists of plain words stay on one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*( [\w./-]+)*")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none"}
_DURATION = re.compile(r"\d+[smhd]")
_LONG = 100


def document(value: Any, header: str = "") -> str:
    """One YAML document, `header` as a comment before it."""
    comment = "".join(f"# {line}".rstrip() + "\n" for line in header.splitlines())
    return comment + "\n".join(_lines(value)) + "\n"


def documents(values: Sequence[Any], header: str = "") -> str:
    """Several documents in one file."""
    return document(values[0], header) + "".join("---\n" + document(value) for value in values[1:])


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key, item in value.items() for line in _entry(f"{_scalar(str(key))}:", item)]
    if isinstance(value, (list, tuple)) and value:
        return [line for item in value for line in _item(item)]
    return [_inline(value)]


def _entry(key: str, value: Any) -> list[str]:
    if isinstance(value, str) and _is_block(value):
        return [f"{key} {_block_mark(value)}", *_indent(value.rstrip("\n").split("\n"))]
    if _is_inline(value):
        return [f"{key} {_inline(value)}"]
    return [key, *_indent(_lines(value))]


def _item(value: Any) -> list[str]:
    if _is_inline(value):
        return [f"- {_inline(value)}"]
    if isinstance(value, str):
        return [f"- {_block_mark(value)}", *_indent(value.rstrip("\n").split("\n"))]
    first, *rest = _lines(value)
    return [f"- {first}", *_indent(rest)]


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]


def _is_block(text: str) -> bool:
    return "\n" in text


def _block_mark(text: str) -> str:
    return "|" if text.endswith("\n") else "|-"


def _is_inline(value: Any) -> bool:
    if isinstance(value, Mapping):
        return not value
    if isinstance(value, (list, tuple)):
        return all(not isinstance(item, (Mapping, list, tuple)) for item in value) and len(_inline(value)) <= _LONG
    return not (isinstance(value, str) and _is_block(value))


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_inline(item) for item in value)}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value)
    if _DURATION.fullmatch(text) or (_PLAIN.fullmatch(text) and text.lower() not in _RESERVED):
        return text
    return "'" + text.replace("'", "''") + "'"

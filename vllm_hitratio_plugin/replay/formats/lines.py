"""Numbered lines of a text file, a gzip file or standard input."""

import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any, TypeVar, cast

import msgspec

from vllm_hitratio_plugin.replay.trace import MOST_TOKENS, TraceError

Record = TypeVar("Record")

Count = Annotated[int, msgspec.Meta(ge=0)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
Seconds = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
"""Beyond that, floating point has no fractions of a second."""

Name = int | str | None

_GZIP_MAGIC = b"\x1f\x8b"


class Lines:
    """Lines of ``path`` ('-' is standard input), with their numbers from 1 on.

    Gzip is known by its first bytes, not by the file's name. Blank lines are kept out, their numbers are not reused.
    Every failure to read is a ``TraceError`` of one sentence.
    """

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == "-" else path
        self._path = path

    def __iter__(self) -> Iterator[tuple[int, str]]:
        number = 0
        try:
            with ExitStack() as stack:
                for number, line in enumerate(self._text(stack), start=1):
                    if not line.isspace():
                        yield number, line
        except UnicodeDecodeError:
            raise TraceError(f"{self.name}, after line {number}: not UTF-8 text") from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise TraceError(f"{self.name}, after line {number}: the gzip data are damaged or cut short") from None
        except OSError as error:
            raise TraceError(f"{self.name}: {(error.strerror or str(error)).lower()}") from None

    def _text(self, stack: ExitStack) -> io.TextIOWrapper:
        if self._path == "-":
            buffered = cast(io.BufferedReader, sys.stdin.buffer)
        else:
            buffered = stack.enter_context(open(self._path, "rb"))  # noqa: SIM115 (the stack closes it)
        packed = buffered.peek(2)[:2] == _GZIP_MAGIC
        text = io.TextIOWrapper(gzip.GzipFile(fileobj=buffered) if packed else buffered, encoding="utf-8")
        stack.callback(text.detach)  # the stack closes the file; standard input stays open
        return text


def parse_json(source: str, number: int, line: str) -> Any:
    """The JSON value on a line; ``TraceError`` naming the line where it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise TraceError(f"{source}, line {number}: not JSON ({reason})") from None


def typed(source: str, number: int, value: Any, kind: type[Record]) -> Record:
    """A JSON value as a typed record; ``TraceError`` naming the line, and the field, where it is none."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise TraceError(f"{source}, line {number}: {error}") from None

"""Failures in words that are safe to log: what kind and where, never the text of a request."""

from __future__ import annotations

import os


def where(error: BaseException) -> str:
    """The kind of an error and its place; not its message, which may hold a block's hash, an id or tokens."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno}"

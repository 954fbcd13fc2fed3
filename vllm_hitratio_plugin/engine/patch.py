"""Wrap a function of vLLM once, however often the plugin is prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Marks a function as wrapped by us.
_MARK = "_hitratio_wrapped"


def wrap_once(owner: Any, name: str, wrap: Callable[[Any], Any], *, static: bool = False) -> None:
    """Replace ``owner.name`` by ``wrap`` of it, unless that was done before; ``static`` for static methods of classes.

    On a class, only what it defines itself counts: a subclass shows its parent's wrapper, too.
    """
    original = getattr(owner, name)
    if not getattr(original, _MARK, False):
        wrapped = wrap(original)
        setattr(wrapped, _MARK, True)
        setattr(owner, name, staticmethod(wrapped) if static else wrapped)

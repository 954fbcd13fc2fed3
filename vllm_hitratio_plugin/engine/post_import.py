"""Run a function right after a module is imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Patch = Callable[[ModuleType], None]


def when_imported(name: str, patch: Patch) -> None:
    """Call ``patch`` with the module: now if it is imported already, else right after its import.

    A second call with the same function does nothing new until the import, and ``patch`` must itself be idempotent.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        patch(module)
        return
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            break
    else:
        finder = _Finder()
        sys.meta_path.insert(0, finder)
    waiting = finder.patches.setdefault(name, [])
    if patch not in waiting:
        waiting.append(patch)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find, and wraps the loader of a module that somebody waits for."""

    def __init__(self) -> None:
        self.patches: dict[str, list[Patch]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.patches:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self.patches[name])
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Executes the module, then the patches; a patch that fails costs the patch, not the import."""

    def __init__(self, loader: importlib.abc.Loader, patches: list[Patch]) -> None:
        self._loader = loader
        self._patches = patches

    def __getattr__(self, name: str) -> object:
        # Everything else that is asked of a loader (get_source, get_filename, ...) is the real one's business.
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for patch in self._patches:
            try:
                patch(module)
            except Exception:
                import logging

                logging.getLogger("vllm.hitratio").exception("hitratio: could not prepare %s", module.__name__)

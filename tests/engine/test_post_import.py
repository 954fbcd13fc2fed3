"""Patches right after an import, whatever comes of them."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from vllm_hitratio_plugin.engine.post_import import when_imported


@pytest.fixture
def module_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []
    finders = list(sys.meta_path)

    def make(name: str, text: str) -> None:
        file = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        made.append(name)
        importlib.invalidate_caches()

    yield make
    sys.meta_path[:] = finders
    for name in made:
        sys.modules.pop(name, None)


def test_the_patch_runs_once_after_the_import(module_file: Callable[[str, str], None]) -> None:
    module_file("patched_one", "VALUE = 1\n")
    seen: list[int] = []

    def patch(module: ModuleType) -> None:
        seen.append(module.VALUE)
        module.VALUE = 2  # type: ignore[attr-defined]

    when_imported("patched_one", patch)
    when_imported("patched_one", patch)
    assert seen == []
    assert "patched_one" not in sys.modules
    module = importlib.import_module("patched_one")
    assert seen == [1]
    assert module.VALUE == 2
    importlib.import_module("patched_one")
    assert seen == [1]


def test_a_module_that_is_there_already_is_patched_now(module_file: Callable[[str, str], None]) -> None:
    module_file("patched_two", "VALUE = 1\n")
    module = importlib.import_module("patched_two")
    when_imported("patched_two", lambda found: setattr(found, "VALUE", 5))
    assert module.VALUE == 5


def test_a_submodule_and_its_package(module_file: Callable[[str, str], None]) -> None:
    module_file("patched_package.inner", "VALUE = 1\n")
    seen: list[str] = []
    when_imported("patched_package.inner", lambda module: seen.append(module.__name__))
    importlib.import_module("patched_package.inner")
    assert seen == ["patched_package.inner"]
    sys.modules.pop("patched_package")


def test_a_failing_patch_costs_the_patch_not_the_import(
    module_file: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    module_file("patched_three", "VALUE = 1\n")
    seen: list[str] = []

    def fail(module: ModuleType) -> None:
        raise RuntimeError("on purpose")

    when_imported("patched_three", fail)
    when_imported("patched_three", lambda module: seen.append(module.__name__))
    with caplog.at_level(logging.ERROR, "vllm.hitratio"):
        assert importlib.import_module("patched_three").VALUE == 1
    assert seen == ["patched_three"]
    assert len(caplog.records) == 1


def test_a_module_that_fails_to_import_fails_as_it_would(module_file: Callable[[str, str], None]) -> None:
    module_file("patched_four", "raise ValueError('its own')\n")
    when_imported("patched_four", lambda module: None)
    with pytest.raises(ValueError, match="its own"):
        importlib.import_module("patched_four")
    when_imported("patched_missing", lambda module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("patched_missing")


def test_the_loader_still_answers_for_the_real_one(module_file: Callable[[str, str], None]) -> None:
    """Tracebacks, inspect and pickle ask the loader for the source."""
    import inspect

    module_file("patched_five", "def hello():\n    return 5\n")
    when_imported("patched_five", lambda module: None)
    module = importlib.import_module("patched_five")
    assert inspect.getsource(module.hello) == "def hello():\n    return 5\n"

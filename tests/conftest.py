"""What all tests share: which of them run where, the tiny model of real servers, the traces next to the repository."""

import importlib.util
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.engines import ALL_ENGINES
from tests.support.repository import ROOT

# These machines are noisy and may run several things at once: how long an example takes says nothing of the code.
settings.register_profile("unhurried", deadline=None)
# Of mutants: the same examples each time, and none remembered from another mutant.
settings.register_profile("mutants", deadline=None, derandomize=True, database=None)
settings.load_profile("unhurried")

TRACES = ROOT.parent / "shared" / "traces"
REQUIRE_VLLM = "HITRATIO_REQUIRE_VLLM"
"""Set to 1 (as `.ci/run` does where CI=true): a test that needs a real vLLM fails where it would skip."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the engines' matrix run in `make test-engines` alone."""
    if ALL_ENGINES:
        return
    elsewhere = [item for item in items if item.get_closest_marker("engines") is not None]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [item for item in items if item.get_closest_marker("engines") is None]


def _required() -> bool:
    return os.environ.get(REQUIRE_VLLM, "") not in ("", "0")


def _absent() -> str | None:
    """Why no real vLLM can be used here, or None: nothing is imported, so a broken vLLM still fails its tests."""
    missing = [name for name in ("vllm", "torch") if importlib.util.find_spec(name) is None]
    return f"needs a real vLLM, and {' and '.join(missing)} cannot be imported" if missing else None


def _needs_vllm(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("vllm", "server"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not _needs_vllm(item):
        return
    reason = _absent()
    if reason is None:
        return
    if _required():
        pytest.fail(f"{reason}; {REQUIRE_VLLM} is set", pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Whatever made a real-vLLM test skip (itself, a fixture, importorskip): where vLLM is required it is a failure."""
    report = yield
    if _required() and _needs_vllm(item) and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a real-vLLM test skipped, and {REQUIRE_VLLM} is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole module that skips for want of vLLM (``importorskip`` at its top)."""
    report = yield
    if _required() and report.skipped and "vllm" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"a module of real-vLLM tests skipped, and {REQUIRE_VLLM} is set: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model that real servers serve; skips where what vLLM brings is not installed."""
    pytest.importorskip("transformers")
    from examples.demo.tiny_model import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for a server's PYTHONPATH with the metadata that the CPU distribution lacks; needs vLLM."""
    from tests.support.real_server import write_shim

    return write_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of public traces beside the repository; skips where it is absent."""
    if not TRACES.is_dir():
        pytest.skip(f"public traces are not at ../{TRACES.relative_to(ROOT.parent)}")
    return TRACES

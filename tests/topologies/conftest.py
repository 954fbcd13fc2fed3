"""Only `make test-engines` starts these: several real servers, minutes each."""

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "versions"), str(TESTS / "server")]

if os.environ.get("HITRATIO_ENGINES", "") in ("", "0"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from examples.demo.tiny_model import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from real_server import write_shim

    return write_shim(tmp_path_factory.mktemp("shim"))

"""What the real servers are started with."""

import sys
from pathlib import Path

import pytest
from real_server import write_shim

from examples.demo.tiny_model import write_tiny_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "versions"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shim(tmp_path_factory.mktemp("shim"))

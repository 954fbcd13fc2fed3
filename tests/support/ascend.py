"""How a process is started that runs vLLM-Ascend over stand-ins for the libraries of an NPU."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.support import wheels
from tests.support.repository import python_path


def environment(version: str) -> dict[str, str]:
    """For a process of that vLLM-Ascend with its vLLM; skips the test where they cannot be had."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the Python of a vLLM needs its torch, which is not installed here")
    try:
        folders = [
            Path(__file__).with_name("ascend_stub"),
            wheels.ascend(version),
            wheels.vllm(wheels.ASCEND[version]),
            wheels.extras(),
            wheels.ascend_extras(),
        ]
    except wheels.UnavailableError as error:
        pytest.skip(str(error))
    return {name: value for name, value in os.environ.items() if not name.startswith("HITRATIO_")} | {
        "PYTHONPATH": python_path(*folders),
        "VLLM_VERSION": wheels.ASCEND[version],
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
        "HITRATIO_ENABLED": "1",
        "HITRATIO_PORT": "0",
    }

"""The built wheel on every Python from 3.10 to 3.13 that the machine has: it installs, and its fast tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import compatibility
from tests.support.repository import ROOT

PYTHONS = ("3.10", "3.11", "3.12", "3.13")

#: Neither an engine nor a server: the mathematics, the index, the sums, the replays, the metrics and the commands.
FAST = (
    "tests/model",
    "tests/index",
    "tests/stats",
    "tests/replay",
    "tests/metrics",
    "tests/test_monitor.py",
    "tests/test_settings.py",
)
TOOLS = ("pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", "PyYAML>=6")

pytestmark = pytest.mark.engines


def interpreter(version: str) -> str | None:
    """A Python of that version: on the path, or of pyenv."""
    found = shutil.which(f"python{version}")
    candidates = [found] if found else []
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates += [str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    for candidate in candidates:
        says = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", says], capture_output=True, text=True, timeout=20)
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    shutil.copytree(ROOT / "vllm_hitratio_plugin", source / "vllm_hitratio_plugin")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)], folder)
    (built,) = folder.glob("*.whl")
    return built


def run(command: list[str], folder: Path, seconds: float = 600) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HITRATIO_", "PYTHON"))}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("version", PYTHONS)
def test_wheel(version: str, wheel: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    run([python, "-m", "venv", str(tmp_path / "venv")], tmp_path)
    inside = str(tmp_path / "venv" / "bin" / "python")
    run([inside, "-m", "pip", "install", "-q", f"{wheel}[lab]", *TOOLS], tmp_path)
    # The tests without the package's source beside them: what is imported is what was installed.
    for name in ("tests", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / "run" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "run" / "pyproject.toml")
    where = run([inside, "-c", "import vllm_hitratio_plugin as p; print(p.__file__)"], tmp_path / "run")
    assert where.startswith(str(tmp_path / "venv"))
    said = run([inside, "-m", "pytest", "-x", *FAST], tmp_path / "run", 1200)
    assert " failed" not in said
    last = said.strip().splitlines()[-1]
    assert run([str(tmp_path / "venv" / "bin" / "hitratio"), "--help"], tmp_path).strip()
    compatibility.record(
        "pythons", version, the_wheel="installs, imports, its command starts", fast_tests=last.strip("= ")
    )

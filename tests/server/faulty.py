"""Makes parts of the plugin raise inside a real engine: a second general plugin, which only these tests install.

Faults are named in files, so that one server can suffer them one after the other: each looks for
``$HITRATIO_TEST_FAULTS/<name>`` when it is called, and raises if that is there.
"""

import functools
import os
from pathlib import Path
from typing import Any

ENTRY_POINTS = "[vllm.general_plugins]\nhitratio_faults = hitratio_faults:register\n"


def install(folder: Path) -> Path:
    """Write the plugin as a distribution into the folder; returns the folder for PYTHONPATH."""
    info = folder / "hitratio_faults-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hitratio-faults\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "hitratio_faults.py").write_text(Path(__file__).read_text())
    return folder


def register() -> None:
    from vllm_hitratio_plugin.engine import recorder, service
    from vllm_hitratio_plugin.model import flow
    from vllm_hitratio_plugin.workload.prefix_tree import PrefixTree

    class Clock:
        monotonic = staticmethod(_breakable("hook", recorder.time.monotonic))

    recorder.time = Clock  # type: ignore[assignment]
    _break(PrefixTree, "admit", "tree")
    _break(flow.Flow, "__init__", "fit")
    _break(service, "Exporter", "exporter")
    _break(service.snapshots, "write", "snapshot")


def _break(owner: Any, name: str, fault: str) -> None:
    setattr(owner, name, _breakable(fault, getattr(owner, name)))


def _breakable(fault: str, original: Any) -> Any:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if os.path.exists(os.path.join(os.environ["HITRATIO_TEST_FAULTS"], fault)):
            raise RuntimeError(f"{fault} made to fail on purpose")
        return original(*args, **kwargs)

    return wrapper

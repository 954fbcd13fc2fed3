"""Makes parts of the plugin fail inside a real engine: a second general plugin, which only these tests install.

Faults are named in files, so that one server can suffer them one after the other: each part looks for
``$HITRATIO_TEST_FAULTS/<name>`` when it is called, and does what is written in it: ``raise``, ``hang`` until the file
is gone, or return ``nonsense``.
"""

import functools
import os
import time
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
    from vllm_hitratio_plugin.index.prefix_tree import PrefixTree
    from vllm_hitratio_plugin.metrics import snapshot_folder
    from vllm_hitratio_plugin.monitor import Monitor

    class Clock:
        monotonic = staticmethod(_breakable("hook", time.monotonic, float("nan")))

    setattr(recorder, "time", Clock)  # noqa: B010 (a name that the module does not export)
    _break(PrefixTree, "look_up", "tree", None)
    _break(Monitor, "refresh", "fit", "as good as it gets")
    _break(service, "Exporter", "exporter", None)
    _break(snapshot_folder, "write", "snapshot", b"?")


def _break(owner: Any, name: str, fault: str, nonsense: object) -> None:
    setattr(owner, name, _breakable(fault, getattr(owner, name), nonsense))


def _breakable(fault: str, original: Any, nonsense: object) -> Any:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        path = os.path.join(os.environ["HITRATIO_TEST_FAULTS"], fault)
        try:
            with open(path) as file:
                what = file.read()
        except OSError:
            return original(*args, **kwargs)
        if what == "nonsense":
            return nonsense
        if what == "hang":
            while os.path.exists(path):
                time.sleep(0.02)
            return original(*args, **kwargs)
        raise RuntimeError(f"{fault} made to fail on purpose")

    return wrapper

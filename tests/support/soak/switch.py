"""Takes the plugin's hooks off a serving engine and puts them back, told by a signal: a vLLM plugin for the soak alone.

SIGUSR2 to the engine's process: what was recorded is worked off, the manager gets its own methods back, and the
plugin's thread has nothing to do. SIGUSR1: recording goes on with what was known. No request may be under way.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any


def install() -> None:
    """The entry point: from the moment on that an engine is watched, its process listens to the signals."""
    from vllm_hitratio_plugin.engine import watch as watching_module
    from vllm_hitratio_plugin.engine.recorder import Recorder
    from vllm_hitratio_plugin.engine.service import Service

    original = watching_module.watch

    def watch(scheduler: Any) -> Service | None:
        watching = original(scheduler)
        if watching is None:
            return None

        def on(*_: object) -> None:
            if watching._recorder is None:
                watching._recorder = Recorder(scheduler.kv_cache_manager)

        def off(*_: object) -> None:
            if watching._recorder is not None:
                watching.refresh()
                watching._recorder.close()
                watching._recorder = None

        signal.signal(signal.SIGUSR1, on)
        signal.signal(signal.SIGUSR2, off)
        return watching

    watching_module.watch = watch


def write_plugin(folder: Path) -> Path:
    """A folder for PYTHONPATH with this plugin in it, as vLLM finds plugins."""
    info = folder / "soak_switch-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: soak-switch\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nsoak_switch = soak_switch:install\n")
    (folder / "soak_switch.py").write_text(Path(__file__).read_text())
    return folder

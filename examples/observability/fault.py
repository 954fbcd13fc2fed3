"""A fault for the demonstration: an engine that silently forgets cached blocks.

It is a separate vLLM plugin (:func:`install` puts an entry point for it on PYTHONPATH). While a file exists, blocks
lose their hash when requests release them, so the next turn does not find them. A bug in the block pool would look like
this, and the model of the cache cannot know of it.
"""

import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FLAG = "HITRATIO_DEMO_FAULT"
"""Environment variable with the path of the file whose existence switches the fault on."""

SHARE = 0.5
"""Share of the requests that lose their blocks."""

_ENTRY_POINT = "[vllm.general_plugins]\nhitratio_demo_fault = examples.observability.fault:register\n"


def install(folder: Path, flag: Path) -> None:
    """Make servers that start from now on load this plugin."""
    metadata = folder / "hitratio_demo_fault-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hitratio-demo-fault\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(_ENTRY_POINT)
    paths = [str(folder.resolve()), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ[FLAG] = str(flag.resolve())


def register() -> None:
    """Called by vLLM in each of its processes."""
    flag = os.environ.get(FLAG)
    if not flag:
        return
    from vllm.v1.core.block_pool import BlockPool

    free_blocks = BlockPool.free_blocks
    if getattr(free_blocks, "_hitratio_demo", False):
        return
    state = {"on": False, "looked": 0.0}

    def faulty(self: Any, ordered_blocks: Iterable[Any]) -> Any:
        blocks = list(ordered_blocks)
        result = free_blocks(self, blocks)
        now = time.monotonic()
        if now - state["looked"] > 0.5:
            state.update(on=os.path.exists(flag), looked=now)
        if state["on"] and random.random() < SHARE:
            for block in blocks:
                if block.ref_cnt == 0 and block.block_hash is not None:
                    self._maybe_evict_cached_block(block)
        return result

    faulty._hitratio_demo = True  # type: ignore[attr-defined]
    BlockPool.free_blocks = faulty

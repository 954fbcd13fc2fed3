"""The entry point: light, idempotent, and silent where the plugin is not enabled."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.support.repository import python_path

LIGHT = """
import json, sys, threading
before = set(sys.modules)
import vllm_hitratio_plugin.plugin as plugin
patches = []
for _ in range(3):
    plugin.register()
    finder = sys.meta_path[0]
    patches.append(sum(len(waiting) for waiting in finder.patches.values()))
print(json.dumps({
    "modules": sorted({name.split(".")[0] for name in set(sys.modules) - before}),
    "patches": patches,
    "finders": sum(type(finder).__name__ == "_Finder" for finder in sys.meta_path),
    "threads": threading.active_count(),
}))
"""


def run(script: str, **env: str) -> dict[str, object]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HITRATIO_")}
    clean["PYTHONPATH"] = python_path()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=clean | env, check=True
    )
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_entry_point_is_found_by_its_name() -> None:
    (found,) = entry_points(group="vllm.general_plugins", name="hitratio")
    assert found.value == "vllm_hitratio_plugin.plugin:register"


@pytest.mark.parametrize("env", [{}, {"HITRATIO_ENABLED": "1"}], ids=["off", "on"])
def test_registering_imports_nothing_heavy_and_starts_nothing(env: dict[str, str]) -> None:
    result = run(LIGHT, **env)
    modules = result["modules"]
    assert isinstance(modules, list)
    assert "vllm_hitratio_plugin" in modules
    heavy = {"numpy", "scipy", "vllm", "torch", "prometheus_client", "http", "asyncio"}
    assert heavy.isdisjoint(modules)
    assert result["patches"] == [4, 4, 4]
    assert result["finders"] == 1
    assert result["threads"] == 1


def test_a_failure_inside_never_gets_out() -> None:
    result = run(
        """
import json, logging, sys
import vllm_hitratio_plugin.engine.install as install
def fail(): raise RuntimeError("on purpose")
install.install = fail
import vllm_hitratio_plugin.plugin as plugin
plugin.register()
print(json.dumps({"alive": True}))
"""
    )
    assert result == {"alive": True}


@pytest.mark.slow
@pytest.mark.vllm
def test_installed_but_not_enabled_leaves_vllm_as_it_was() -> None:
    """A scheduler of a server without --plugin: its cache manager has no method of ours."""
    result = run(
        """
import json, os
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
import vllm_hitratio_plugin.plugin as plugin
plugin.register()
from tests.support.real_manager import make_manager
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched import scheduler
manager = make_manager(8)
import threading
from vllm.v1.metrics.prometheus import get_prometheus_registry
print(json.dumps({
    "prepared": hasattr(scheduler.Scheduler.__init__, "__wrapped__"),
    "instance": sorted(set(vars(manager)) & {"allocate_slots", "free", "reset_prefix_cache", "_hitratio_service"}),
    "owner": KVCacheManager.allocate_slots.__module__,
    "registered": hasattr(get_prometheus_registry(), "_hitratio_registered"),
    "environment": sorted(name for name in os.environ if name.startswith("HITRATIO")),
    "threads": [thread.name for thread in threading.enumerate() if "hitratio" in thread.name],
}))
"""
    )
    assert result == {
        "prepared": True,
        "instance": [],
        "owner": "vllm.v1.core.kv_cache_manager",
        "registered": False,
        "environment": [],
        "threads": [],
    }

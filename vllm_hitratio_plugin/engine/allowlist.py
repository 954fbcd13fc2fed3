"""``VLLM_PLUGINS`` is one list for plugins of all kinds: naming only this one turns a hardware platform off."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import entry_points

#: Groups whose plugins a platform needs; both are filtered by the same list (docs/vllm.md#how-plugins-load).
_PLATFORMS = "vllm.platform_plugins"
_GENERAL = "vllm.general_plugins"


def advice(env: Mapping[str, str] | None = None) -> str | None:
    """One sentence on what the list leaves out and which list works; None where it is unset or complete.

    A list is incomplete if it leaves out a plugin of a distribution that provides a platform, such as vllm-ascend. vLLM
    then finds no device, or lacks the platform's connectors and patches.
    """
    env = os.environ if env is None else env
    listed = env.get("VLLM_PLUGINS")
    if listed is None:
        return None
    # As vLLM reads it: spaces are part of a name.
    allowed = listed.split(",")
    platforms = entry_points(group=_PLATFORMS)
    brought = {entry.dist.name for entry in platforms if entry.dist is not None}
    needed = [entry.name for entry in platforms]
    needed += [
        entry.name for entry in entry_points(group=_GENERAL) if entry.dist is not None and entry.dist.name in brought
    ]
    missing = sorted({name for name in needed if name not in allowed})
    if not missing:
        return None
    names = [name for name in (name.strip() for name in allowed) if name and name not in missing]
    works = ",".join([*names, *missing])
    whose = ", ".join(sorted(name.replace("_", "-") for name in brought))
    return (
        f"VLLM_PLUGINS leaves out {', '.join(missing)} of {whose}, which needs all of its plugins: "
        f"unset VLLM_PLUGINS, or use VLLM_PLUGINS={works}"
    )

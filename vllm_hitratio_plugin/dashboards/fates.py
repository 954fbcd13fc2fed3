"""The fates of prompt blocks, each with its colour."""

from __future__ import annotations

from vllm_hitratio_plugin.dashboards.panel import OBSERVED, QUIET

#: From what the cache served, over what it lost, to what no cache can serve.
FATE_COLORS = {
    "hit": OBSERVED,
    "capacity": "orange",
    "unexplained": "red",
    "cold": "#5b7083",
    "partial": QUIET,
}


def matcher(fate: str) -> str:
    """The label matcher of one fate, sub-reasons summed over."""
    return f'fate="{fate}"'

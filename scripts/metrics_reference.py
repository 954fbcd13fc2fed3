"""Writes docs/metrics.md from the metric families; with --check, only says whether it is up to date."""

import sys
from pathlib import Path

from vllm_hitratio_plugin.metrics.families import FAMILIES
from vllm_hitratio_plugin.snapshot import DEGRADATIONS
from vllm_hitratio_plugin.snapshot import COLUMNS

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"

HEAD = """# Metrics

Made by `python scripts/metrics_reference.py`; do not edit.

All have the labels `model_name` and `engine`, equal to vLLM's. They are on each API server's `/metrics` and on the
engine's own exporter (`127.0.0.1:9577 + local data-parallel rank`). What was not measured has no sample: no ratio
before there is enough data, no recommendation without a target or out of reach.

Counters advance together, at each refresh (`--hitratio-interval`, 15 s), so the ratio of two counters' increases is
exact over any time and over any set of replicas: sum first, then divide. Gauges that are ratios describe the current
window of one engine; do not average them.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The page's text."""
    rows = []
    for family in FAMILIES:
        name = family.name + ("_total" if family.kind == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{name}` | {family.kind} | {labels} | {family.help} |\n")
    fates: dict[str, list[str]] = {}
    for fate, reason in COLUMNS:
        fates.setdefault(fate, []).append(f"`{reason}`")
    ends = [
        "\nValues of `reason` in `hitratio_degraded`: " + ", ".join(f"`{reason}`" for reason in DEGRADATIONS) + ".\n",
        "\nFates and their reasons in `hitratio_prompt_blocks_by_outcome_total`: "
        + "; ".join(f"`{fate}` ({', '.join(reasons)})" for fate, reasons in fates.items())
        + ".\n",
    ]
    return HEAD + "".join(rows) + "".join(ends)


def main() -> int:
    """Write or check."""
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != page():
            print(f"{PAGE.name} is out of date: run python scripts/metrics_reference.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())

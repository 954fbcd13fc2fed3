"""docs/compatibility.md: what the tests of the engines showed.

A test records a cell of the table once all it asserts about it has held; ``python -m tests.support.compatibility``
(the end of ``make test-engines``) writes the page from the cells.
"""

from __future__ import annotations

import json
import shutil

from tests.support import wheels
from tests.support.engines import ALL_ENGINES
from tests.support.repository import ROOT

CELLS = ROOT / "build" / "compatibility"
PAGE = ROOT / "docs" / "compatibility.md"

#: Sections: title, what it says, the first column's head, the other columns.
SECTIONS = {
    "vllm": (
        "vLLM",
        "The Python code of each release, on CPU. Cache manager, scheduler and command line are real; only the model's "
        "answers are synthetic. *Observed* is the plugin's hit ratio on a fixed trace of 220 prompts in a cache "
        "that is too small for it. It equals, to the last block, an exact LRU with that release's treatment of partly "
        "filled blocks. *Lookups* is how often `vllm:prefix_cache_queries` counts the 30 prompts of an overloaded "
        "engine; the plugin counts 30. *Cases* are problems that users reported: 1-3 blocks that are large for the "
        "prompts, 4 preempted requests, 5 requests looked up while they wait, 6 means of ratios, 10 the tail that is "
        "evicted first, 11 histories that are rewritten, 14 salts and adapters, 15 speculative decoding, 16 resets.",
        "vLLM",
        ("partly filled blocks go to", "same records", "observed = exact LRU", "flags", "reported cases", "lookups"),
    ),
    "shadow": (
        "Exact shadow under random traffic",
        "Admissions on that release's scheduler whose hit is not the exact LRU's, of all. Prompts come in bursts, "
        "share prefixes, are preempted and aborted at any moment; the cache is reset. Budget and threshold are "
        "`max_num_batched_tokens` and `long_prefill_token_threshold`.",
        "traffic",
        tuple(wheels.VLLM),
    ),
    "ascend": (
        "vLLM-Ascend",
        "vLLM-Ascend's real scheduler and connector code on CPU, over a stub of `torch_npu` and `acl`. Nothing was run "
        "on an NPU. *Either order*: the plugin loads before or after vLLM-Ascend's patches. *Release* is when the "
        "records show that a prefiller's blocks became free.",
        "vLLM-Ascend",
        ("with vLLM", "schedulers", "either order", "producer's release", "external hits", "prefix caching off"),
    ),
    "pythons": (
        "Python",
        "The built wheel in its own environment, without an engine, for the Python versions that the machine has.",
        "Python",
        ("the wheel", "fast tests"),
    ),
    "faults": (
        "Faults",
        "Each part of the plugin is made to fail in a serving engine of vLLM 0.32.0. Every request was answered, every "
        "page parsed, the log had no traceback, and what raised was in `hitratio_degraded`. The hook can't hang: it "
        "only appends tuples to a queue.",
        "part",
        ("raises", "hangs", "returns nonsense"),
    ),
    "limits": (
        "Limits",
        "Extreme input and conditions. In each case vLLM had no exception and `/metrics` parsed. Lost "
        "records are reported.",
        "condition",
        ("what was seen",),
    ),
    "topologies": (
        "Topologies",
        "Real servers and engines of vLLM 0.32.0 on CPU.",
        "topology",
        ("what was seen",),
    ),
}


def record(section: str, row: str, **cells: str) -> None:
    """Fill cells of a row; underscores in a column's name stand for spaces."""
    if not ALL_ENGINES:
        return  # the page has all versions or none
    CELLS.mkdir(parents=True, exist_ok=True)
    for column, value in cells.items():
        name = f"{section} {row} {column}".replace("/", "-").replace(" ", "_")
        (CELLS / f"{name}.json").write_text(json.dumps([section, row, column, value]))


def page() -> str:
    """The page, from what was recorded."""
    rows: dict[str, dict[str, dict[str, str]]] = {}
    for path in sorted(CELLS.glob("*.json")):
        section, row, column, value = json.loads(path.read_text())
        rows.setdefault(section, {}).setdefault(row, {})[column] = value
    lines = [
        "# Compatibility",
        "",
        "Written by `make test-engines`. A test fills a cell only after it passed; `-` means that no test showed it.",
    ]
    for section, (title, words, head, columns) in SECTIONS.items():
        lines += ["", f"## {title}", "", words, "", f"| {head} | {' | '.join(columns)} |"]
        lines.append("|" + " --- |" * (len(columns) + 1))
        for row, cells in rows.get(section, {}).items():
            values = [cells.get(_key(column), "-") for column in columns]
            lines.append(f"| {row} | {' | '.join(values)} |")
    return "\n".join(lines) + "\n"


def _key(column: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in column)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    shutil.rmtree(CELLS)
    print(f"wrote {PAGE.relative_to(ROOT)}")

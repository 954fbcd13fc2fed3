"""Mutation testing of ``model/`` and ``index/``: small changes of the code, and whether the tests notice.

    python -m tools.mutants --count 300 --seed 0        (`make mutants`)

mutmut makes every mutant; a sample of them, the same for the same seed, is tested with the tests that reach the changed
function, among those of pyproject's ``[tool.mutmut]``. Prints how many were killed and the changes that survived;
``build/mutants.json`` has all of it. Exit code 1 where fewer than ``--least`` of the sample were killed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from mutmut.__main__ import create_mutants
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, setup_source_paths

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "mutants"
"""mutmut's own folder."""
REPORT = ROOT / "build" / "mutants.json"


def generate(processes: int) -> list[str]:
    """Every mutant's name, sorted; unchanged files are not made again."""
    set_mutant_under_test("mutant_generation")
    WORK.mkdir(exist_ok=True)
    copy_src_dir()
    copy_also_copy_files()
    setup_source_paths()
    with contextlib.redirect_stdout(io.StringIO()):  # it names each file
        create_mutants(processes)
    return sorted(results())


def results() -> dict[str, int | None]:
    """Exit codes of the tests by mutant; None for one that was not tested."""
    found: dict[str, int | None] = {}
    for path in sorted(WORK.rglob("*.py.meta")):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    return found


def change(name: str) -> str:
    """What the mutant changes, as a diff."""
    shown = subprocess.run([sys.executable, "-m", "mutmut", "show", name], capture_output=True, text=True, check=True)
    lines = shown.stdout.splitlines()
    return "\n".join(line for line in lines if line.startswith(("+", "-")) and not line.startswith(("+++", "---")))


def main() -> int:
    """Generate, sample, test and report."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Which mutants the tests kill.")
    parser.add_argument("--count", type=int, default=300, help="mutants to test (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2, help="at the same time")
    parser.add_argument("--least", type=float, default=0.0, help="share that must be killed (default 0)")
    options = parser.parse_args()
    os.chdir(ROOT)
    names = generate(options.processes)
    chosen = sorted(random.Random(options.seed).sample(names, min(options.count, len(names))))
    print(f"mutants: {len(chosen)} of {len(names)}, seed {options.seed}", flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(options.processes), *chosen]
    done = subprocess.run(command, check=False)
    if done.returncode:
        return done.returncode
    codes = results()
    statuses = {name: status_by_exit_code[codes[name]] for name in chosen}
    counts = {status: list(statuses.values()).count(status) for status in sorted(set(statuses.values()))}
    # One that never ends is noticed, too.
    killed = sum(counts.get(status, 0) for status in ("killed", "timeout", "caught by type check"))
    left = {name: change(name) for name, status in statuses.items() if status not in ("killed", "timeout")}
    for name, text in left.items():
        print(f"\n{statuses[name]}: {name}\n{text}")
    REPORT.parent.mkdir(exist_ok=True)
    report = {
        "seed": options.seed,
        "mutants": len(names),
        "tested": len(chosen),
        "counts": counts,
        "killed_share": killed / len(chosen),
        "seconds": round(time.monotonic() - began),
        "not_killed": left,
    }
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\nmutants: {killed} of {len(chosen)} killed ({killed / len(chosen):.1%}); {counts}")
    return int(killed < options.least * len(chosen))


if __name__ == "__main__":
    sys.exit(main())

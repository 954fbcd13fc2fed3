"""``python -m tools.dashboards [--check]``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.dashboards.generate import problems, write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 1 if ``--check`` found a difference."""
    parser = argparse.ArgumentParser(prog="python -m tools.dashboards", description="Generate the files of grafana/.")
    parser.add_argument("--out", type=Path, default=Path("grafana"), help="target folder (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a file is out of date")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.out)
        return 0
    found = problems(options.out)
    print("".join(f"{problem}\n" for problem in found), file=sys.stderr, end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a command for as long as standard input stays open: the command ends with the parent, however that ends.

A signal at the parent's death (``PR_SET_PDEATHSIG``) is not enough: vLLM's server ignores SIGTERM while its engine
starts, and SIGKILL would leave the engine running.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

#: Seconds from SIGTERM to SIGKILL.
GRACE = 5.0


def main(command: Sequence[str]) -> int:
    """Run the command in a process group of its own, leave none of that group, and return its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_end_with_parent, args=(child.pid,), daemon=True).start()
    code = child.wait()
    end(child.pid)
    return code if code >= 0 else 128 - code


def end(group: int) -> None:
    """Ask a process group to end, and kill what is left of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        deadline = time.monotonic() + GRACE
        while members(group) and time.monotonic() < deadline:
            time.sleep(0.05)


def members(group: int) -> list[int]:
    """Processes of a group that still run; not zombies, which only their new parent can reap."""
    import psutil  # brought by vLLM

    found = []
    for each in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(each.pid) == group and each.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(each.pid)
    return found


def _end_with_parent(group: int) -> None:
    os.read(0, 1)  # nothing is ever written: it returns when the parent closes the pipe, or ends
    end(group)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

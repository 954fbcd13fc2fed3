"""A real vLLM server for as long as a ``with`` block lasts, and never longer than the demo."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.demo.errors import DemoError
from examples.demo.progress import Progress
from examples.demo.settings import BLOCK_SIZE, MAX_PROMPT_TOKENS

HOST = "127.0.0.1"
START_TIMEOUT = 600.0
STOP_TIMEOUT = 5.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    model: str
    capacity_blocks: int
    """N: blocks the prefix cache can hold, vLLM's null block not included."""
    port: int
    hitratio_port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def exporter_url(self) -> str:
        """The engine's own exporter."""
        return f"http://{HOST}:{self.hitratio_port}"


@contextlib.contextmanager
def serve(
    model: Path, *, capacity_blocks: int, log: Path, plugin_options: Sequence[str], hitratio_port: int
) -> Iterator[Server]:
    """Start vLLM on `model` with a cache of `capacity_blocks`, wait until it is healthy, and stop it at the end.

    The CPU distribution's ``vllm`` command does not work, its module does. Raises :class:`DemoError` with the last
    lines of the log if it does not start.
    """
    port, hitratio_port = free_port(), free_port(hitratio_port)
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--load-format", "dummy", "--enforce-eager"),
        *("--block-size", str(BLOCK_SIZE), "--num-gpu-blocks-override", str(capacity_blocks + 1)),
        *("--max-model-len", str(MAX_PROMPT_TOKENS + BLOCK_SIZE)),
        *("--host", HOST, "--port", str(port), "--disable-uvicorn-access-log"),
        *plugin_options,
        *(("--hitratio-port", str(hitratio_port)) if plugin_options else ()),
    ]
    process = start(command, log)
    try:
        server = Server(str(model), capacity_blocks, port, hitratio_port, log, process)
        _wait_until_healthy(server)
        yield server
    finally:
        stop(process)


def start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process, the head of a process group of its own, that gets SIGTERM when this one ends in any way."""
    parent = os.getpid()

    def end_with_parent() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it ended before the call
                os._exit(1)

    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | OFFLINE,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the process group to end, and kill what is left of it, at once if a signal interrupts the waiting."""
    try:
        _end(process, signal.SIGTERM)
    finally:
        _end(process, signal.SIGKILL)


def free_port(wanted: int = 0) -> int:
    """A port on which no process listens now: the wanted one if it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_healthy(server: Server) -> None:
    progress, began, waited = Progress(), time.monotonic(), 0.0
    what = f"vLLM with {server.capacity_blocks:,} blocks on port {server.port}"
    while waited < START_TIMEOUT and server.process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.url}/health", timeout=2):
                progress.done(f"  {what}: up after {waited:.0f} s, log in {server.log}")
                return
        except OSError:
            progress.show(f"  {what}: starting, {waited:.0f} s")
            time.sleep(0.25)
        waited = time.monotonic() - began
    code = server.process.poll()
    problem = f"was not healthy after {waited:.0f} s" if code is None else f"ended with code {code}"
    tail = server.log.read_text(errors="replace").splitlines()[-15:]
    raise DemoError("\n".join([f"vLLM {problem}", *tail]))


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    deadline = time.monotonic() + STOP_TIMEOUT
    while (process.poll() is None or members(process.pid)) and time.monotonic() < deadline:
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

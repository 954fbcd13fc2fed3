"""A real vLLM server for as long as a ``with`` block lasts."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.demo.errors import DemoError
from examples.demo.interrupts import held
from examples.demo.progress import Progress
from examples.demo.settings import BLOCK_SIZE, MAX_PROMPT_TOKENS

HOST = "127.0.0.1"
START_TIMEOUT = 600.0
STOP_TIMEOUT = 5.0
REAP_TIMEOUT = 3.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


class ServerError(DemoError):
    """The server did not start, or died; the message ends with the last lines of its log."""


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    model: str
    capacity_blocks: int
    """N: blocks the prefix cache can hold, vLLM's null block not among them."""

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
        return f"http://{HOST}:{self.hitratio_port}/metrics"


@contextlib.contextmanager
def serve(
    model: Path, *, capacity_blocks: int, log: Path, plugin_options: Sequence[str], hitratio_port: int
) -> Iterator[Server]:
    """Start vLLM on `model` with a cache of `capacity_blocks`, wait until it is healthy, and stop it at the end.

    It runs in a process group of its own, all of which is gone when the block is left, in whatever way. (The ``vllm``
    command does not work in the CPU distribution, its module does.) Raises :class:`ServerError`.
    """
    port = free_port()
    hitratio_port = hitratio_port if _is_free(hitratio_port) else free_port()
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--load-format", "dummy", "--enforce-eager"),
        *("--block-size", str(BLOCK_SIZE), "--num-gpu-blocks-override", str(capacity_blocks + 1)),
        *("--max-model-len", str(MAX_PROMPT_TOKENS + BLOCK_SIZE)),
        *("--host", HOST, "--port", str(port), "--disable-uvicorn-access-log"),
        *plugin_options,
        *(("--hitratio-port", str(hitratio_port)) if plugin_options else ()),
    ]
    log.parent.mkdir(parents=True, exist_ok=True)
    process: subprocess.Popen[bytes] | None = None
    try:
        with log.open("wb") as output, held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | OFFLINE,
                start_new_session=True,
            )
        server = Server(str(model), capacity_blocks, port, hitratio_port, log, process)
        _wait_until_healthy(server)
        yield server
    finally:
        if process is not None:
            with held():
                _stop(process)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _wait_until_healthy(server: Server) -> None:
    progress = Progress()
    began = time.monotonic()
    what = f"vLLM with {server.capacity_blocks:,} blocks on port {server.port}"
    while True:
        waited = time.monotonic() - began
        if server.process.poll() is not None:
            raise ServerError(f"vLLM ended with code {server.process.returncode}\n{_tail(server.log)}")
        if waited > START_TIMEOUT:
            raise ServerError(f"vLLM was not healthy after {START_TIMEOUT:.0f} s\n{_tail(server.log)}")
        try:
            with urllib.request.urlopen(f"{server.url}/health", timeout=2):
                progress.done(f"  {what}: up after {waited:.0f} s, log in {server.log}")
                return
        except (urllib.error.URLError, OSError):
            progress.show(f"  {what}: starting, {waited:.0f} s")
            time.sleep(0.25)


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group: ask, wait, then kill; return when none of it is left."""
    group = process.pid
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        if _until(lambda: not _members(group), STOP_TIMEOUT):
            break
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(REAP_TIMEOUT)
    _until(lambda: not _exists(group), REAP_TIMEOUT)  # orphans are reaped by whoever adopted them, soon


def _until(holds: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _members(group: int) -> list[int]:
    """Processes of a group that still run; zombies, which only their new parent can reap, do not."""
    import psutil  # brought by vLLM

    found = []
    for each in psutil.process_iter(["pid", "status"]):
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if os.getpgid(each.info["pid"]) == group and each.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(each.info["pid"])
    return found

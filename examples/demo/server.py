"""A real vLLM server for as long as a ``with`` block lasts, and never longer than the demo."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.demo import guard
from examples.demo.errors import DemoError
from examples.demo.progress import Progress
from examples.demo.settings import BLOCK_SIZE, MAX_PROMPT_TOKENS

HOST = "127.0.0.1"
START_TIMEOUT = 600.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


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
    """Start a process that ends with this one, even if this one is killed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, guard.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | OFFLINE,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started, in less than twice ``guard.GRACE`` seconds."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait()
    finally:
        process.wait()  # if a signal interrupted the first one


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

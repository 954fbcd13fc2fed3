"""Servers end with the demo: signals while starting and stopping, a killed parent, process groups that resist."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.demo import guard, server
from examples.demo.errors import DemoError
from examples.demo.interrupts import Interrupted, interruptible

ROOT = Path(__file__).parents[2]

#: Two processes that ignore SIGTERM; the first one prints its id.
PAIR = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); first = os.fork();"
    " print(os.getpid() if first else '', flush=True, end=' '); time.sleep({seconds} if first else 60)"
)
STUBBORN = PAIR.format(seconds=60)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.05)


def wait_for(condition: str, path: Path) -> str:
    """The text of a file, once it has some."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()).strip():
            return text
        time.sleep(0.05)
    raise AssertionError(condition)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_interrupts(number: signal.Signals, code: int) -> None:
    with pytest.raises(Interrupted) as caught, interruptible():
        send(number)
    assert caught.value.exit_code == code


def test_later_signals_do_not_disturb_the_stopping() -> None:
    stopped = []

    def run() -> None:
        with interruptible():
            try:
                send(signal.SIGINT)
            finally:
                send(signal.SIGINT)
                stopped.append(True)

    with pytest.raises(Interrupted):
        run()
    assert stopped == [True]


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def log(tmp_path: Path) -> Path:
    pytest.importorskip("psutil")
    return tmp_path / "log"


def group_of(log: Path) -> int:
    group = int(wait_for("the command runs", log))
    deadline = time.monotonic() + 10
    while len(guard.members(group)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(guard.members(group)) == 2
    return group


def test_a_stubborn_process_group_is_killed(log: Path) -> None:
    process = server.start([sys.executable, "-c", STUBBORN], log)
    group = group_of(log)
    server.stop(process)
    assert guard.members(group) == []
    assert process.returncode == 128 + signal.SIGKILL


def test_a_signal_while_stopping_waits_for_the_end(log: Path) -> None:
    process = server.start([sys.executable, "-c", STUBBORN], log)
    group = group_of(log)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(Interrupted), interruptible():
        server.stop(process)
    assert guard.members(group) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_its_parent(log: Path, number: signal.Signals) -> None:
    """Even if the parent gets no chance to stop it, and the server ignores SIGTERM."""
    program = (
        "import sys, time; from pathlib import Path; from examples.demo import server\n"
        f"process = server.start([sys.executable, '-c', {STUBBORN!r}], Path({str(log)!r})); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    try:
        group = group_of(log)
        parent.send_signal(number)
        parent.wait(10)
    finally:
        parent.kill()
    deadline = time.monotonic() + 2 * guard.GRACE
    while guard.members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert guard.members(group) == []


def test_what_a_server_leaves_behind_ends_with_it(log: Path) -> None:
    """An engine whose server has crashed, for instance."""
    process = server.start([sys.executable, "-c", PAIR.format(seconds=0.5)], log)
    assert process.wait(30) == 0
    assert guard.members(int(log.read_text())) == []
    server.stop(process)


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "no such option: $*"\nexit 3\n')
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    started = server.serve(
        tmp_path, capacity_blocks=64, log=tmp_path / "log", plugin_options=["--plugin", "hitratio"], hitratio_port=9577
    )
    with pytest.raises(DemoError, match=r"vLLM ended with code 3\nno such option: .*--num-gpu-blocks-override 65"):
        started.__enter__()


def test_a_port_that_is_taken_is_not_chosen() -> None:
    port = server.free_port()
    assert server.free_port(port) == port
    with socket.socket() as holder:
        holder.bind((server.HOST, port))
        holder.listen()
        assert server.free_port(port) not in (0, port)


@pytest.mark.vllm
def test_tiny_model(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    from examples.demo.tiny_model import VOCABULARY, write_tiny_model

    folder = str(write_tiny_model(tmp_path / "model"))
    config = AutoConfig.from_pretrained(folder)
    assert (config.model_type, config.num_hidden_layers, config.num_key_value_heads) == ("qwen3", 2, 2)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Grüße").input_ids
    assert len(ids) == len("Grüße".encode())
    assert tokenizer.decode(ids) == "Grüße"
    assert len(tokenizer) == 259 < VOCABULARY
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"

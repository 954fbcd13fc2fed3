"""Nothing is left behind: signals while starting and stopping, and process groups that do not want to end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.demo import server
from examples.demo.errors import DemoError
from examples.demo.interrupts import Interrupted, held, interruptible


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.05)


def test_a_signal_interrupts() -> None:
    with pytest.raises(Interrupted) as caught, interruptible():
        send(signal.SIGTERM)
    assert caught.value.exit_code == 143


def test_a_held_signal_waits_for_the_end_of_the_block() -> None:
    reached = []

    def start() -> None:
        with interruptible(), held():
            send(signal.SIGINT)
            reached.append("end")

    with pytest.raises(Interrupted) as caught:
        start()
    assert reached == ["end"]
    assert caught.value.exit_code == 130


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


def test_a_stubborn_process_group_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    monkeypatch.setattr(server, "STOP_TIMEOUT", 0.5)
    stubborn = "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {}; time.sleep(60)"
    child = f"subprocess.Popen([sys.executable, '-c', {stubborn.format('0')!r}]); print('up', flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", stubborn.format(child)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert len(server._members(process.pid)) == 2
    server._stop(process)
    assert server._members(process.pid) == []
    process.stdout.close()


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

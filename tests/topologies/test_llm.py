"""``LLM(...)``: the engine in this process, in a spawned one and in a forked one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.server import free_port
from tests.support import compatibility
from tests.support.real_server import environment

pytestmark = [pytest.mark.engines, pytest.mark.vllm, pytest.mark.timeout(900)]

SCRIPT = """
import json, sys, time, urllib.request
from vllm import LLM, SamplingParams

def main():
    llm = LLM(sys.argv[1], load_format="dummy", enforce_eager=True, block_size=32, num_gpu_blocks_override=65,
              max_model_len=1024)
    for length in (100, 200, 300):
        llm.generate([{"prompt_token_ids": list(range(length))}], SamplingParams(max_tokens=1), use_tqdm=False)
    for _ in range(600):
        time.sleep(0.2)
        page = urllib.request.urlopen("http://127.0.0.1:%s/hitratio" % sys.argv[2], timeout=5).read()
        counters = json.loads(page)["counters"]
        if counters["requests"] == 3:
            break
    print("RESULT", json.dumps([counters["requests"], counters["hit_tokens"], json.loads(page)["engine"]]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["in process", "spawn", "fork"])
def test_llm(tiny_model: Path, tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    port = free_port()
    settings = {"HITRATIO_ENABLED": "1", "HITRATIO_PORT": str(port), "HITRATIO_INTERVAL": "0.5"}
    settings |= (
        {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"} if method == "in process" else {"VLLM_WORKER_MULTIPROC_METHOD": method}
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tiny_model), str(port)],
        capture_output=True,
        text=True,
        timeout=800,
        env=environment(settings, []),
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stdout[-2000:] + done.stderr[-2000:]
    # The first 96, then 192 tokens of each are there from the one before; 64 of the longest stay alone.
    assert json.loads(results[0].removeprefix("RESULT ")) == [3, 96 + 192, "0"]
    compatibility.record(
        "topologies", f"`LLM(...)`, {method}", what_was_seen="the engine's exporter, counters of three prompts exact"
    )

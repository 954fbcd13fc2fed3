"""examples/ascend: every option of the scripts is one that vLLM 0.22.1 with vLLM-Ascend knows; the check is right."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.ascend import environment
from tests.support.repository import ROOT

EXAMPLE = ROOT / "examples" / "ascend"

PARSE = """
import json, sys
from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.engine.arg_utils import AsyncEngineArgs
parser = make_arg_parser(FlexibleArgumentParser())
for arguments in json.loads(sys.argv[1]):
    args = AsyncEngineArgs.from_cli_args(parser.parse_args(arguments))
    print("PARSED", args.block_size, args.enable_prefix_caching, args.kv_cache_memory_bytes,
          args.kv_transfer_config.kv_connector, args.kv_transfer_config.kv_role)
"""


def commanded(script: str, tmp_path: Path, *arguments: str) -> list[str]:
    """What the script would start: its `vllm` or `python` only says what it was called with."""
    binaries = tmp_path / "bin"
    binaries.mkdir(exist_ok=True)
    for name in ("vllm", "python"):
        stand_in = binaries / name
        stand_in.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
        stand_in.chmod(0o755)
    done = subprocess.run(
        ["bash", str(EXAMPLE / script), *arguments],
        env={
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "IP": "10.0.0.1",
            "VLLM_ASCEND": "/clone",
            "DECODER_NPUS": "1,2",
            "MODEL": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")[:-1]


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_options_are_vllms(tmp_path: Path) -> None:
    asked = [commanded("prefiller.sh", tmp_path), commanded("decoder.sh", tmp_path, "1")]
    assert [arguments[0] for arguments in asked] == ["serve", "serve"]
    # The module's parser takes the model by name, the command takes it first.
    lines = [["--model", *arguments[1:]] for arguments in asked]
    done = subprocess.run(
        [sys.executable, "-c", PARSE, json.dumps(lines)],
        env=environment("0.22.1rc1"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    parsed = [line for line in done.stdout.splitlines() if line.startswith("PARSED")]
    assert parsed == [
        f"PARSED 128 True {40 << 30} MooncakeConnectorV1 kv_producer",
        "PARSED 128 False None MooncakeConnectorV1 kv_consumer",
    ], done.stderr[-2000:]


def test_proxy_knows_all(tmp_path: Path) -> None:
    arguments = commanded("proxy.sh", tmp_path)
    assert arguments[0] == "/clone/examples/disaggregated_prefill_v1/load_balance_proxy_server_example.py"
    assert arguments[arguments.index("--decoder-ports") + 1 :] == ["13800", "13801"]


def test_40_gib_are_2275_blocks() -> None:
    """36 layers of 8 heads of 128, keys and values in bfloat16, 128 tokens."""
    assert (40 << 30) // (36 * 8 * 128 * 2 * 2 * 128) == 2275


def page(capacity: int, off: bool) -> str:
    from prometheus_client import CollectorRegistry, generate_latest

    from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
    from vllm_hitratio_plugin.snapshot import Snapshot

    snapshot = Snapshot(
        model_name="Qwen3-8B",
        engine="0",
        version="0",
        vllm_version="0.22.1",
        unhashed="tail",
        wall_time=0.0,
        capacity_blocks=capacity,
        block_size=128,
        block_bytes=18 << 20,
        modelled=True,
        max_model_len=32768,
        degraded={"prefix_caching_off": "off"} if off else {},
    )
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: [snapshot]))
    return generate_latest(registry).decode()


@pytest.mark.parametrize(
    ("capacity", "off", "wrong"),
    [
        (2274, False, []),
        (2118, False, ["hitratio_capacity_blocks is 2118"]),
        (2274, True, ["prefix caching is off", "degraded: prefix_caching_off"]),
    ],
)
def test_the_check_of_a_prefiller(capacity: int, off: bool, wrong: list[str]) -> None:
    text = page(capacity, off).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            ["bash", str(EXAMPLE / "check.sh"), "prefiller"],
            env={"PATH": os.environ["PATH"], "IP": "10.0.0.1", "HITRATIO_PORT": str(server.server_address[1])},
            capture_output=True,
            text=True,
            timeout=20,
        )
        server.shutdown()
    said = [line for line in done.stdout.splitlines() if line.startswith("wrong ")]
    assert len(said) == len(wrong), done.stdout + done.stderr
    assert all(line.startswith(f"wrong {words}") for line, words in zip(said, wrong, strict=True))
    assert done.returncode == (1 if wrong else 0)


def test_kubernetes_says_the_same(tmp_path: Path) -> None:
    """The manifest's prefiller has the script's options, and listens where the monitor looks."""
    yaml = pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text()))
    names = {(each["kind"], each["metadata"]["name"]) for each in documents}
    assert {("Deployment", name) for name in ("prefiller", "decoder", "proxy")} <= names
    (prefiller,) = [
        each for each in documents if (each["kind"], each["metadata"]["name"]) == ("Deployment", "prefiller")
    ]
    (container,) = prefiller["spec"]["template"]["spec"]["containers"]
    command = container["args"][0].replace("\\\n", " ").split()
    script = commanded("prefiller.sh", tmp_path)
    options = {word for word in script if word.startswith("--")} - {"--hitratio-port"}
    assert options <= set(command)
    assert {port["name"]: port["containerPort"] for port in container["ports"]}["hitratio"] == 9577

"""Several API servers; prefix caching off; installed but not enabled; options that can't be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.server import free_port
from tests.support.real_server import CAPACITY, Samples, command, environment, serve

pytestmark = [pytest.mark.server, pytest.mark.vllm, pytest.mark.timeout(900)]


def test_several_api_servers_show_the_same_once(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    # Refreshes far enough apart that several pages can be read between two of them.
    options = ("--api-server-count", "2", "--hitratio-window", "60", "--hitratio-interval", "3")
    with serve(tiny_model, tmp_path / "log", *options, paths=[shim]) as server:
        sent = server.drive(conversations=30)
        server.wait_until_counted(sent)
        # Each connection may reach another of the servers.
        *pages, exporters = server.pages_of_one_refresh(*[None] * 6, server.exporter_port)

        def ours(page: Samples) -> Samples:
            return {name: found for name, found in page.items() if name.startswith("hitratio_") and "_total" in name}

        assert len(ours(pages[0])) >= 8
        for page in (*pages, exporters):
            assert ours(page) == ours(pages[0])
        for found in ours(pages[0]).values():
            labels = [tuple(sorted(each.items())) for each, _ in found]
            assert len(labels) == len(set(labels))
            assert not any("pid" in each for each, _ in found)
        # vLLM's own is per API server in this mode, and adds up.
        for name, theirs in (
            ("hitratio_prompt_tokens_total", "vllm:prefix_cache_queries_total"),
            ("hitratio_hit_tokens_total", "vllm:prefix_cache_hits_total"),
        ):
            ((_, value),) = pages[0][name]
            assert value == sum(each for _, each in pages[0][theirs]) > 0


def test_prefix_caching_off_is_said_at_start_and_exported(tiny_model: Path, shim: Path, tmp_path: Path) -> None:
    with serve(tiny_model, tmp_path / "log", "--no-enable-prefix-caching", paths=[shim]) as server:
        assert len([line for line in server.lines() if "prefix caching is off" in line]) == 1
        server.drive(conversations=5)
        for port in (server.port, server.exporter_port):
            assert server.value("hitratio_degraded", port, reason="prefix_caching_off") == 1
            assert server.value("hitratio_capacity_blocks", port) == CAPACITY
            names = [name for name in server.samples(port) if name.startswith("hitratio_")]
            assert not [name for name in names if name.endswith(("_total", "_ratio", "_bucket", "_rate"))]


ENGINES = """
import json, os, sys
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
from vllm import LLM, SamplingParams
from prometheus_client import generate_latest
from vllm.v1.metrics.prometheus import get_prometheus_registry

def look():
    llm = LLM(sys.argv[1], load_format="dummy", enforce_eager=True, block_size=32, num_gpu_blocks_override=65,
              max_model_len=512, disable_log_stats=False)
    manager = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager
    prompts = [{"prompt_token_ids": [1] * 100}, {"prompt_token_ids": [1] * 200}]
    for prompt in prompts:
        llm.generate([prompt], SamplingParams(max_tokens=1), use_tqdm=False)
    service = getattr(manager, "_hitratio_service", None)
    if service is not None:
        service.refresh()
    page = generate_latest(get_prometheus_registry()).decode()
    return {
        "replaced": sorted(set(vars(manager)) & {"allocate_slots", "free", "reset_prefix_cache"}),
        "metrics": sorted({line.split("{")[0] for line in page.splitlines() if line.startswith("hitratio_")}),
        "prompts": None if service is None else service.snapshot.counters.requests,
        "hits": None if service is None else service.snapshot.counters.hit_tokens,
        "environment": sorted(name for name in os.environ if name.startswith("HITRATIO_")),
    }

off = look()
os.environ["HITRATIO_ENABLED"] = "1"
os.environ["HITRATIO_PORT"] = "0"
on = look()
print("RESULT", json.dumps([off, on]))
"""


def test_installed_but_not_enabled_and_then_by_environment_alone(tiny_model: Path) -> None:
    """`LLM(...)` with the engine in this process, so that its cache manager can be looked at."""
    done = subprocess.run(
        [sys.executable, "-c", ENGINES, str(tiny_model)],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment({}, []),
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stdout[-2000:] + done.stderr[-2000:]
    off, on = json.loads(results[0].removeprefix("RESULT "))
    assert off == {"replaced": [], "metrics": [], "prompts": None, "hits": None, "environment": []}
    assert on["replaced"] == ["allocate_slots", "free", "reset_prefix_cache"]
    assert (on["prompts"], on["hits"]) == (2, 96)


@pytest.fixture(scope="module")
def refusals(tiny_model: Path, shim: Path) -> dict[tuple[str, str], tuple[int, str]]:
    """Exit code and output of every wrong option, tried two at a time."""
    wrong = [
        ("--plugin", "nosuch"),
        ("--hitratio-target", "1.7"),
        ("--hitratio-port", "99999"),
        ("--hitratio-window", "0"),
    ]
    results = {}
    for pair in (wrong[:2], wrong[2:]):
        started = {
            option: subprocess.Popen(
                command(tiny_model, free_port(), *option),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment({}, [shim]),
                text=True,
            )
            for option in pair
        }
        for option, process in started.items():
            output, _ = process.communicate(timeout=400)
            results[option] = (process.returncode, output)
    return results


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--plugin", "nosuch", "'nosuch' (choose from"),
        ("--hitratio-target", "1.7", "'1.7' is not a hit ratio to aim at: use a number above 0 and below 1"),
        ("--hitratio-port", "99999", "'99999' is not a port: use a whole number from 0 to 65535"),
        ("--hitratio-window", "0", "'0' is not a window in seconds: use a number from 10 to "),
    ],
)
def test_a_wrong_option_is_one_sentence_before_the_model_is_loaded(
    refusals: dict[tuple[str, str], tuple[int, str]], option: str, value: str, words: str
) -> None:
    code, output = refusals[option, value]
    assert code == 2
    errors = [line for line in output.splitlines() if "error: " in line]
    assert len(errors) == 1
    assert f"argument {option}: " in errors[0]
    assert words in errors[0]
    assert "Traceback" not in output
    assert "EngineCore" not in output
    assert "Starting to load model" not in output

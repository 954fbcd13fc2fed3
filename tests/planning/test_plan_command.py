"""``hitratio plan``: what it prints and writes, and one sentence for what it can't use."""

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from vllm_hitratio_plugin.access import Access
from vllm_hitratio_plugin.cli import main
from vllm_hitratio_plugin.exporter.server import Exporter
from vllm_hitratio_plugin.metrics.collector import SnapshotCollector
from vllm_hitratio_plugin.monitor import Monitor
from vllm_hitratio_plugin.planning.options import PlanOptions
from vllm_hitratio_plugin.planning.report import report, summary
from vllm_hitratio_plugin.planning.subject import PlanError, live_subject
from vllm_hitratio_plugin.replay.arrivals import poisson
from vllm_hitratio_plugin.replay.generator import Traffic, draw_conversations, generate
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.snapshot import OUTCOMES, REUSE_TIME, Snapshot
from vllm_hitratio_plugin.snapshot_json import to_json

BLOCK_SIZE = 128


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mooncake's format, 400 conversations."""
    made = generate(draw_conversations(None, 400), Traffic(poisson(1.5), exponential(60)), block_size=BLOCK_SIZE).trace
    path = tmp_path_factory.mktemp("plan") / "trace.jsonl"
    lines = (
        {"timestamp": p.time * 1000, "input_length": p.tokens, "hash_ids": list(p.blocks), "session_id": p.conversation}
        for p in made.prompts
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    made = generate(draw_conversations(None, 2500), Traffic(poisson(1.5), exponential(60)), block_size=BLOCK_SIZE).trace
    monitor = Monitor(block_size=BLOCK_SIZE, capacity_blocks=1000)
    for key, prompt in enumerate(made.prompts):
        monitor.admit(
            Access(prompt.time, key, prompt.tokens, prompt.blocks, 0, in_use_blocks=0, conversation=prompt.conversation)
        )
        monitor.release(prompt.time, key)
    estimate = monitor.refresh(made.prompts[-1].time)
    return Snapshot(
        "model",
        "0",
        "1",
        "1",
        "head",
        0.0,
        1000,
        BLOCK_SIZE,
        18 << 20,
        True,
        counters=monitor.counters,
        estimate=estimate,
        sums=monitor.sums,
    )


@pytest.fixture
def address(snapshot: Snapshot) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = to_json(snapshot)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def vllm_address(snapshot: Snapshot) -> Iterator[str]:
    """vLLM's own port: a page of metrics that names the engine's exporter, and nothing else."""
    exporter = Exporter("127.0.0.1", 0, lambda: snapshot)
    registry = CollectorRegistry()
    told = replace(snapshot, exporter=f"http://127.0.0.1:{exporter.port}")
    registry.register(SnapshotCollector(lambda: [told]))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()
    exporter.close()


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["models"]


def test_a_trace(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model,) = planned(
        capsys,
        *(str(trace), "--capacity-gib", "20,40", "--block-bytes", "18MiB", "--target", "0.2", "--target", "0.99"),
        *("--load", "2", "--block-size", "256", "--prefill-tokens-per-second", "1000"),
    )
    assert model["today"]["capacity_blocks"] == 1137
    assert model["today"]["hit_ratio"] == pytest.approx(model["observed"], abs=0.03)
    assert [size["gib"] for size in model["capacities"]] == pytest.approx([20, 40], abs=0.02)
    assert model["today"]["targets"][0]["gib"] > 0
    assert model["today"]["targets"][1]["blocks"] is None
    assert "no capacity" in model["today"]["targets"][1]["reason"]
    assert [what["change"] for what in model["what_ifs"]] == [
        "traffic × 2",
        "blocks of 256 tokens",
        "together: blocks of 256 tokens, traffic × 2",
    ]
    tokens, seconds = (model["today"][f"{key}_per_hour"] for key in ("saved_tokens", "prefill_seconds_saved"))
    assert seconds == pytest.approx(tokens / 1000)


def test_a_live_engine(address: str, snapshot: Snapshot, capsys: pytest.CaptureFixture[str]) -> None:
    (model,) = planned(capsys, address, "--replicas", "4", "--routing", "random")
    assert snapshot.estimate is not None
    assert model["today"]["hit_ratio"] == pytest.approx(snapshot.estimate.predicted["reuse_time"], abs=0.02)
    assert model["block_bytes"] == 18 << 20
    assert model["what_ifs"][0]["hit_ratio"] < model["today"]["hit_ratio"] + 0.02
    assert model["horizon_blocks"] == max(snapshot.estimate.curve)


def test_a_second_tier_that_serves_is_said_and_not_proposed(snapshot: Snapshot) -> None:
    estimate = snapshot.estimate
    assert estimate is not None
    assert live_subject(snapshot).external is None
    outcomes = list(estimate.outcomes)
    outcomes[OUTCOMES.index(("hit", "external"))] = outcomes[OUTCOMES.index(("capacity", "evicted"))] = 1000
    served = replace(snapshot, estimate=replace(estimate, outcomes=outcomes))
    (plan,) = PlanOptions(source="http://localhost").live([served])
    external = 1000 / sum(outcomes)
    assert plan.to_dict()["external"] == pytest.approx(external)
    assert f"A second tier serves another {100 * external:.1f} %" in plan.to_dict()["notes"][-1]
    assert not any(what["second_tier_hit_ratio"] for what in plan.to_dict()["what_ifs"])


def test_an_engine_without_any_reuse() -> None:
    monitor = Monitor(block_size=BLOCK_SIZE, capacity_blocks=1000)
    for number in range(300):
        monitor.admit(Access(number, number, 1280, range(10 * number, 10 * number + 10), 0, in_use_blocks=0))
        monitor.release(number, number)
    estimate = monitor.refresh(300)
    cold = Snapshot("model", "0", "1", "1", "head", 0.0, 1000, BLOCK_SIZE, None, True, monitor.counters, estimate)
    (plan,) = PlanOptions(source="http://localhost", target=(0.5,)).live([replace(cold, sums=monitor.sums)])
    assert (plan.today.hit_ratio, plan.curve.ceiling, plan.today.targets[0].blocks) == (0, 0, None)
    assert summary(plan)
    assert "nan" not in report([plan], "now")


def test_vllms_own_port_is_enough(address: str, vllm_address: str, capsys: pytest.CaptureFixture[str]) -> None:
    (model,) = planned(capsys, vllm_address, "--load", "2")
    (same,) = planned(capsys, address, "--load", "2")
    assert model["today"] == same["today"]
    assert model["what_ifs"] == same["what_ifs"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"modelled": False}, "of a kind that is not modelled"),
        ({"sums": None}, "has no sums of the window"),
        ({"estimate": None}, "does not hold enough prompts"),
    ],
)
def test_an_engine_that_cannot_be_planned_for(snapshot: Snapshot, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        live_subject(replace(snapshot, **changes))


def test_traffic_that_moved_within_the_window_is_noted(snapshot: Snapshot) -> None:
    assert snapshot.estimate is not None
    moved = replace(snapshot.estimate, predicted=snapshot.estimate.predicted | {REUSE_TIME: 0.99})
    assert "99.0 %" in live_subject(replace(snapshot, estimate=moved)).notes[-1]


def test_what_was_observed_belongs_to_the_engines_capacity(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    (model,) = planned(capsys, address, "--capacity-gib", "20,30")
    assert model["today"]["capacity_blocks"] == 1137
    assert model["observed"] is None
    assert [size["gib"] for size in model["capacities"]] == pytest.approx([20, 30], abs=0.02)


def test_an_address_without_a_scheme(
    address: str, trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (model,) = planned(capsys, address.removeprefix("http://"), "--replicas", "10000")
    assert model["source"].startswith("live")
    monkeypatch.chdir(trace.parent)
    Path("host:80").write_bytes(trace.read_bytes())
    (model,) = planned(capsys, "host:80", "--capacities", "1000", "--load", "2")
    assert model["source"].endswith(" s")


def test_prompts_that_never_fit_are_spoken_of(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(trace), "--capacities", "20", "--target", "0.99", "--load", "2"]
    (model,) = planned(capsys, *arguments)
    prompts = [json.loads(line) for line in trace.read_text().splitlines()]
    assert model["left_out_prompts"] == sum(len(prompt["hash_ids"]) > 20 for prompt in prompts) > 0
    assert main(["plan", *arguments]) == 0
    said = capsys.readouterr()
    assert "no capacity" not in said.out
    assert f"left out: {model['left_out_prompts']:,}" in said.out
    assert f"larger than 20 blocks: {model['left_out_prompts']:,}; still waiting at the end: 0." in said.err


def test_the_report_is_one_file_without_network(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    assert main(["plan", str(trace), "--capacities", "1000,2000", "--target", "0.2", "--html", str(page)]) == 0
    text = page.read_text()
    assert len(text) < 100_000
    assert text.count("<svg") == 3
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")

    class Tags(HTMLParser):
        open: list[str]

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "meta":
                self.open.append(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}

        def handle_endtag(self, tag: str) -> None:
            if self.open and self.open[-1] == tag:
                self.open.pop()

    tags = Tags()
    tags.open = []
    tags.feed(text)
    assert set(tags.open) <= {"line", "rect", "circle", "polyline"}
    assert str(page) in capsys.readouterr().out


def test_names_are_escaped(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["plan", str(trace), "--capacities", "1000", "--name", "<b>&", "--html", str(page)]) == 0
    assert "<b>&" not in page.read_text()


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_several_models(trace: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    if suffix == "toml" and sys.version_info < (3, 11):
        pytest.skip("TOML needs Python 3.11")
    models: list[dict[str, Any]] = [
        {"name": "small", "source": trace.name, "capacities": [500, 1000], "load": [2, 3]},
        {
            **{"name": "large", "source": trace.name, "capacity-gib": 70, "block_bytes": "18MiB"},
            **{"replicas": 2, "routing": "sticky", "service_time": 5, "exclusive": False},
        },
    ]
    config = trace.with_name(f"models.{suffix}")
    if suffix == "json":
        config.write_text(json.dumps({"model": models}))
    else:
        lines = [
            f"{key} = {json.dumps(value)}\n" if value is not None else "[[model]]\n"
            for model in models
            for key, value in [("", None), *model.items()]
        ]
        config.write_text("".join(lines))
    small, large = planned(capsys, "--config", str(config))
    assert (small["model"], large["model"]) == ("small", "large")
    assert [what["change"] for what in small["what_ifs"]] == ["traffic × 2", "traffic × 3"]
    assert large["what_ifs"][0]["replicas"] == 2
    assert large["today"]["capacity_blocks"] == 3982
    assert large["today"]["pinned_blocks"] > 0
    page = trace.with_name("report.html")
    assert main(["plan", "--config", str(config), "--html", str(page)]) == 0
    text = page.read_text()
    assert "All models" in text
    assert text.index("<h2>small</h2>") < text.index("<h2>large</h2>")
    said = capsys.readouterr().out
    assert said.index("small (") < said.index("large (")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give one of a trace"),
        (["TRACE"], "needs --capacities"),
        (["TRACE", "--capacity-gib", "4"], "needs --block-bytes"),
        (["TRACE", "--capacities", "0"], "at least 1"),
        (["TRACE", "--capacities", "100", "--target", "40"], "between 0 and 1"),
        (["TRACE", "--capacities", "100", "--load", "0"], "positive"),
        (["TRACE", "--capacities", "1000", "--in-use", "5"], "--service-time"),
        (["TRACE", "--capacities", "100", "--interarrival", "5"], "has its own times"),
        (["/no/such/trace", "--capacities", "100"], "no such file"),
        (["http://127.0.0.1:9"], "can't be reached"),
        (["http://127.0.0.1:9", "--interarrival", "5"], "is for traces"),
        (["http://[::1"], "is not an address of a server"),
        (["127.0.0.1:9"], "can't be reached"),
        (["127.0.0.1:9", "--timeout", "1e300"], "must be at most 86,400 s"),
        (["TRACE", "--capacities", "100", "--replicas", "1000000"], "must be at most 10,000"),
        (["TRACE", "--capacity-gib", "1e300", "--block-bytes", "1"], "is more than 1,000,000,000,000,000 blocks"),
        (["--config", "/no/such/file.json"], "no such file"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], sentence: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *(str(trace) if argument == "TRACE" else argument for argument in arguments)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "models.json"),
        ('{"model": []}', "a list 'model'"),
        ('{"model": [{"name": "a"}]}', "model a: Object missing required field `source`"),
        ('{"model": [{"name": "a", "source": "x", "load": [0]}]}', "model a: Expected `float` > 0.0 - at `$.load[0]`"),
        ('{"model": [{"source": "x", "block-bytes": "much"}]}', "model 1: Expected `float` > 0.0 - at `$.block_bytes`"),
        (
            '{"model": [{"source": "x", "capacities": 1, "capacity_gib": 1}]}',
            "model 1: give --capacities or --capacity-gib, not both",
        ),
        ('{"model": [{"name": "a", "source": "x", "lod": 2}]}', "model a: Object contains unknown field `lod`"),
    ],
)
def test_a_bad_config_is_one_sentence(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "models.json"
    config.write_text(text)
    assert main(["plan", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1

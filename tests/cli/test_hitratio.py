"""The command as a whole: quick help, exit codes, one sentence on stderr."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_hitratio_plugin import __version__
from vllm_hitratio_plugin.cli import COMMANDS, main

PAPER = [
    "--history-workload", "38.9092", "--reusable-workload", "22.5178", "--lifetime-blocks", "12.922",
    "--capacity-blocks", "2275",
]  # fmt: skip
ESTIMATE = ["estimate", "--arrival-rate", "1.5", "--mean-interarrival", "135", *PAPER]


def hitratio(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vllm_hitratio_plugin.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload, no-any-return]


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from vllm_hitratio_plugin.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'scipy', 'matplotlib', 'vllm', 'torch', 'tqdm'} & sys.modules.keys()))\n"
    )
    started = time.perf_counter()
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert time.perf_counter() - started < 2  # half a second is meant; a busy machine gets some more
    assert output.splitlines()[-1] == "[]"
    for name in COMMANDS:
        assert name in output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"usage: hitratio {command}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"hitratio {__version__}"


TRACE_ARGUMENTS = ["--capacities", "10"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "hitratio: the following arguments are required: COMMAND"),
        (["guess"], "hitratio: argument COMMAND: invalid choice: 'guess'"),
        (["estimate"], "hitratio estimate: the following arguments are required: --arrival-rate"),
        ([*ESTIMATE, "--target", "30"], "argument --target: must be between 0 and 1 (a ratio, not a percentage)"),
        ([*ESTIMATE, "--mean-interarrival", "-1"], "--mean-interarrival: must be a positive number, not '-1'"),
        (
            [*ESTIMATE, "--mean-interarrival", "nan"],
            "--mean-interarrival: must be a positive number, not 'nan'",
        ),
        ([*ESTIMATE, "--reusable-workload", "50"], "reusable_workload (a part of history_workload)"),
        ([*ESTIMATE, "--tokenizer", "x"], "--tokenizer is for --conversations"),
        ([*ESTIMATE, "--conversations", "x"], "--conversations already gives what --history-workload says"),
        ([*ESTIMATE, "--interarrival", "normal:1"], "not allowed with argument"),
        (
            ["estimate", "--arrival-rate", "1", "--interarrival", "normal:1", *PAPER],
            "'normal:1': a law of durations must be one of exponential",
        ),
        (
            ["estimate", "--arrival-rate", "1", "--mean-interarrival", "1", "--capacity-blocks", "9"],
            "--history-workload and --reusable-workload and --lifetime-blocks (or --conversations) must be given",
        ),
        (
            ["estimate", "--arrival-rate", "1", "--interarrival", "weibull:135:0.005", *PAPER],
            "'weibull:135:0.005' is too extreme",
        ),
        (
            ["estimate", "--arrival-rate", "1", "--interarrival", "lognormal:135:1e200", *PAPER],
            "is too extreme to",
        ),
        (
            ["estimate", "--arrival-rate", "1", "--interarrival", "gamma:135:1e308", *PAPER],
            "is too extreme to",
        ),
        (["replay", "good", *TRACE_ARGUMENTS, "--service-time", "weibull:1:1e-9"], "'weibull:1:1e-9' is too extreme"),
        (
            ["replay", "turns", *TRACE_ARGUMENTS, "--interarrival", "weibull:135:0.005"],
            "'weibull:135:0.005' is too extreme",
        ),
        (["replay", "good", "--capacities", "1" + 400 * "0"], "must be at most 1,000,000,000,000,000"),
        (["replay", "huge", *TRACE_ARGUMENTS], "huge, line 1: the last prompt"),
        (["replay", "x"], "hitratio replay: the following arguments are required: --capacities"),
        (["replay", "x", "--capacities", "10,,20"], "must be an integer of at least 1, not ''"),
        (["replay", "x", "--capacities", "0"], "must be an integer of at least 1, not '0'"),
        (["replay", "absent", *TRACE_ARGUMENTS], "hitratio replay: absent: no such file or directory"),
        (["replay", ".", *TRACE_ARGUMENTS], "hitratio replay: .: is a directory"),
        (["replay", "text", *TRACE_ARGUMENTS], "text, line 1: not JSON"),
        (["replay", "cut.gz", *TRACE_ARGUMENTS], "cut.gz, after line 0: the gzip data are damaged or cut short"),
        (["replay", "second", *TRACE_ARGUMENTS], "second, line 2: Object missing required field `timestamp`"),
        (["replay", "deep", *TRACE_ARGUMENTS], "deep, line 1: not JSON"),
        (
            ["replay", "good", *TRACE_ARGUMENTS, "--interarrival", "9"],
            "is for turn lengths; good has its own times",
        ),
        (["replay", "good", *TRACE_ARGUMENTS, "--service-time", "soon"], "'soon': exponential takes exponential:MEAN"),
        (["replay", "good", *TRACE_ARGUMENTS, "--block-size", "100"], "cannot be made into blocks of 100"),
        (["replay", "turns", *TRACE_ARGUMENTS, "--arrivals", "never"], "'never': poisson takes poisson:RATE"),
        (["replay", "turns", *TRACE_ARGUMENTS, "--warmup", "9", "--conversations", "9"], "leave none to measure"),
        (["experiment", "paper-3"], "argument name: invalid choice: 'paper-3'"),
        (["experiment", "paper-1", "--turn-lengths", "absent"], "absent: no such file or directory"),
        (["experiment", "paper-1", "--turn-lengths", "good"], "good, line 1: Expected `array`, got `object`"),
        (["experiment", "convergence", "--unhashed", "head"], "convergence is about Algorithm 1"),
        (["experiment", "paper-1", "--conversations", "1"], "conversations are too few"),
        (["experiment", "paper-1", "--out", "good"], "good: file exists"),
        (["experiment", "nonstationary", "--response-time", "9"], "--response-time is for paper-1 and paper-2"),
        (["replay", "good", *TRACE_ARGUMENTS, "--response-time", "9"], "--response-time is for turn lengths"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    good = json.dumps({"timestamp": 0, "input_length": 600, "hash_ids": [1, 2]})
    Path("good").write_text(good)
    Path("text").write_text("hello\n")
    Path("cut.gz").write_bytes(b"\x1f\x8b\x08")
    Path("second").write_text(f'{good}\n{{"input_length": 5, "hash_ids": [1]}}\n')
    Path("deep").write_text("[" * 200_000)
    Path("turns").write_text("[[10, 20], [30, 40]]\n")
    Path("huge").write_text("[[9999999999999,20],[5,5]]\n")
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert complaint in output.err
    assert output.err.startswith("hitratio")
    assert output.err.count("\n") == 1
    assert "Traceback" not in output.err


def test_a_reader_that_goes_away_gets_no_traceback(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_text(json.dumps({"timestamp": 0, "input_length": 600, "hash_ids": [1, 2]}) + "\n")
    capacities = ",".join(map(str, range(10, 400)))
    command = [
        sys.executable,
        "-m",
        "vllm_hitratio_plugin.cli",
        "replay",
        str(trace),
        "--json",
        "--capacities",
        capacities,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads everything")
def test_a_file_one_may_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    secret.chmod(0)
    assert main(["replay", str(secret), "--capacities", "1"]) == 2
    assert "permission denied" in capsys.readouterr().err


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vllm_hitratio_plugin.cli.estimate.print_json", interrupt)
    assert main([*ESTIMATE, "--json"]) == 130
    assert capsys.readouterr().err == ""


def test_json_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_hitratio_plugin.cli.output import print_json

    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    print_json({"a": float("nan"), "b": [float("inf"), 1.5, (2, "λ")]})
    assert json.loads(stream.getvalue()) == {"a": None, "b": [None, 1.5, [2, "λ"]]}

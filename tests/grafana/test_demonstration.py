"""The parts of ``make demo-observability`` that need no server."""

from pathlib import Path

import pytest

from examples.observability import fault
from examples.observability.__main__ import main
from examples.observability.pages import GRAPHS, graph_address
from examples.observability.stack import Stack, StackError, find_tools, hurried, running


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="prometheus is not installed: apt-get install"):
        find_tools()


def test_a_stack_that_does_not_start_says_why(tmp_path: Path) -> None:
    try:
        find_tools()
    except StackError as error:
        pytest.skip(str(error))
    with pytest.raises(StackError, match=r"prometheus ended with code \d+"), running(tmp_path, [], "no rules"):
        pass


@pytest.mark.parametrize("option", ["--healthy=0", "--rate=-1", "--think=soon", "--capacity=many"])
def test_bad_options(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([option])
    assert caught.value.code == 2
    assert option.split("=")[0] in capsys.readouterr().err


def test_hurried_windows_stay_long_enough() -> None:
    rules = "expr: rate(x[5m]) > 0\n    for: 10m\n    keep_firing_for: 5m\n    interval: 30s\n"
    assert hurried(rules, 100).splitlines() == [
        "expr: rate(x[15s]) > 0",
        "    for: 6s",
        "    keep_firing_for: 3s",
        "    interval: 1s",
    ]


def test_one_address_shows_all_graphs() -> None:
    address = graph_address(Stack("http://127.0.0.1:9090", "http://127.0.0.1:9093"), 8)
    assert address.startswith("http://127.0.0.1:9090/graph?g0.expr=engine")
    assert f"g{len(GRAPHS) - 1}.range_input=8m" in address


def test_the_fault_is_found_by_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import distributions

    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv(fault.FLAG, "")
    fault.install(tmp_path, tmp_path / "flag")
    [found] = [each for each in distributions(path=[str(tmp_path)]) if each.metadata["Name"] == "hitratio-demo-fault"]
    [entry_point] = found.entry_points
    assert entry_point.group == "vllm.general_plugins"
    assert entry_point.load() is fault.register

"""The options as an argparse user meets them: real flags, values in the environment, one sentence for a bad value."""

import argparse
import os
from collections.abc import Iterator

import pytest

from vllm_hitratio_plugin.engine.flags import add_options, announce, unused
from vllm_hitratio_plugin.settings import ENABLED, OPTIONS, SNAPSHOT_DIR, Settings, enabled


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (ENABLED, SNAPSHOT_DIR, *(option.variable for option in OPTIONS)):
        monkeypatch.delenv(name, raising=False)
    yield
    for name in (ENABLED, SNAPSHOT_DIR, *(option.variable for option in OPTIONS)):
        os.environ.pop(name, None)


def plain() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog="vllm serve")


def flexible() -> argparse.ArgumentParser:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    made: argparse.ArgumentParser = FlexibleArgumentParser(prog="vllm serve")
    return made


PARSERS = pytest.mark.parametrize(
    "make", [pytest.param(plain, id="argparse"), pytest.param(flexible, id="vllm", marks=pytest.mark.vllm)]
)


@PARSERS
def test_values_go_to_the_environment_and_not_into_the_namespace(make: "type[argparse.ArgumentParser]") -> None:
    parser = make()
    parser.add_argument("--port", type=int, default=8000)
    add_options(parser)
    numbers = ["--hitratio-target", "0.6", "--hitratio-port", "9600", "--hitratio-index-blocks", "5000"]
    namespace = parser.parse_args(["--plugin", "hitratio", *numbers, "--port", "1"])
    assert vars(namespace) == {"port": 1}
    assert enabled()
    settings, _ = Settings.from_env()
    assert (settings.target, settings.port, settings.index_blocks) == (0.6, 9600, 5000)
    assert settings.host == "127.0.0.1"


@PARSERS
def test_nothing_given_nothing_changed(make: "type[argparse.ArgumentParser]") -> None:
    before = dict(os.environ)
    parser = make()
    add_options(parser)
    assert vars(parser.parse_args([])) == {}
    assert not enabled()
    assert dict(os.environ) == before


@PARSERS
def test_the_plugin_option_is_repeatable(make: "type[argparse.ArgumentParser]") -> None:
    parser = make()
    add_options(parser)
    parser.parse_args(["--plugin", "hitratio", "--plugin=hitratio"])
    assert enabled()


@PARSERS
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--plugin", "nosuch"], "'nosuch'"),
        (["--hitratio-target", "1.7"], "'1.7' is not a hit ratio"),
        (["--hitratio-target", "0"], "'0' is not a hit ratio"),
        (["--hitratio-target", "1"], "'1' is not a hit ratio"),
        (["--hitratio-target", "nan"], "'nan' is not a hit ratio"),
        (["--hitratio-target", "sixty percent"], "'sixty percent' is not a hit ratio"),
        (["--hitratio-port", "99999"], "'99999' is not a port"),
        (["--hitratio-port", "80.5"], "'80.5' is not a port"),
        (["--hitratio-port", "-1"], "'-1' is not a port"),
        (["--hitratio-window", "0"], "'0' is not a window"),
        (["--hitratio-window", "inf"], "'inf' is not a window"),
        (["--hitratio-interval", "0"], "'0' is not an interval"),
        (["--hitratio-index-blocks", "5"], "'5' is not a number of blocks"),
        (["--hitratio-host", ""], "'' is not an address"),
    ],
)
def test_a_bad_value_is_one_sentence_and_exit_code_2(
    make: "type[argparse.ArgumentParser]", options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = make()
    add_options(parser)
    name, value = options
    with pytest.raises(SystemExit) as ended:
        parser.parse_args([f"{name}={value}"])
    assert ended.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in last
    assert name in last


@PARSERS
def test_help_names_every_option_with_its_default(
    make: "type[argparse.ArgumentParser]", capsys: pytest.CaptureFixture[str]
) -> None:
    parser = make()
    add_options(parser)
    text = argparse.ArgumentParser.format_help(parser)
    for option in OPTIONS:
        assert option.flag in text
        if option.default is not None:
            assert f"(default: {option.default})" in " ".join(text.split())


@pytest.mark.vllm
def test_vllms_own_arguments_get_ours() -> None:
    """Through EngineArgs itself, twice patched; and from_cli_args never hears of it."""
    import vllm.engine.arg_utils as arg_utils

    from vllm_hitratio_plugin.engine import flags

    original = arg_utils.EngineArgs.__dict__["add_cli_args"]
    try:
        flags.add_to(arg_utils)
        flags.add_to(arg_utils)
        parser = arg_utils.EngineArgs.add_cli_args(flexible())
        namespace = parser.parse_args(["--model", "tiny", "--plugin", "hitratio", "--hitratio-target", "0.5"])
        assert not any("hitratio" in name or name == "plugin" for name in vars(namespace))
        assert arg_utils.EngineArgs.from_cli_args(namespace).model == "tiny"
        assert Settings.from_env()[0].target == 0.5
    finally:
        arg_utils.EngineArgs.add_cli_args = original


def test_a_parser_that_owns_plugin_already_is_left_alone() -> None:
    from types import SimpleNamespace

    from vllm_hitratio_plugin.engine import flags

    class EngineArgs:
        @staticmethod
        def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
            parser.add_argument("--plugin", dest="theirs")
            return parser

    flags.add_to(SimpleNamespace(EngineArgs=EngineArgs))  # type: ignore[arg-type]
    parser = EngineArgs.add_cli_args(plain())
    assert parser.parse_args(["--plugin", "other"]).theirs == "other"
    assert not enabled()


def test_the_folder_is_named_once_and_made_by_nobody_yet() -> None:
    announce()
    first = os.environ[SNAPSHOT_DIR]
    announce()
    assert os.environ[SNAPSHOT_DIR] == first
    assert not os.path.exists(first)


def test_settings_without_the_switch_are_said_to_be_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in OPTIONS:
        monkeypatch.delenv(option.variable, raising=False)
    monkeypatch.delenv(ENABLED, raising=False)
    assert unused() is None
    monkeypatch.setenv("HITRATIO_TARGET", "0.6")
    words = unused()
    assert words is not None
    assert words.startswith("HITRATIO_TARGET: without effect")
    assert "--plugin hitratio" in words
    monkeypatch.setenv(ENABLED, "1")
    assert unused() is None

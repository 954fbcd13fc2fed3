"""``--plugin hitratio`` and ``--hitratio-*`` as real options of ``vllm serve`` and of the API server module."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from vllm_hitratio_plugin.engine.patch import wrap_once
from vllm_hitratio_plugin.settings import ENABLED, OPTIONS, SNAPSHOT_DIR, Option, SettingsError, enabled


def add_to(arg_utils: ModuleType) -> None:
    """Let ``EngineArgs.add_cli_args`` add our options too; vLLM looks it up on the class after loading plugins."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def add_cli_args(parser: Any, *args: Any, **kwargs: Any) -> Any:
            parser = original(parser, *args, **kwargs)
            # If a later vLLM has its own --plugin, the environment variables still work.
            with contextlib.suppress(argparse.ArgumentError):
                add_options(parser)
            return parser

        return add_cli_args

    wrap_once(arg_utils.EngineArgs, "add_cli_args", wrap, static=True)


def add_options(parser: Any) -> None:
    """Add the options to an argparse parser. Their values go to the environment, never into the namespace.

    vLLM passes its namespace to other processes and hashes parts of its configuration into the key of the compile
    cache. The environment reaches every process and changes neither.
    """
    group = parser.add_argument_group("hitratio", "Predicted and observed prefix-cache hit ratio")
    group.add_argument(
        "--plugin",
        action=_Enable,
        choices=["hitratio"],
        default=argparse.SUPPRESS,
        dest=argparse.SUPPRESS,
        help="enable a plugin by name; may be repeated",
    )
    for option in OPTIONS:
        group.add_argument(
            option.flag,
            action=_Remember,
            type=_typed(option),
            default=argparse.SUPPRESS,
            dest=argparse.SUPPRESS,
            metavar=option.metavar,
            option=option,
            help=option.help + ("" if option.default is None else f" (default: {option.default})"),
        )


def announce() -> None:
    """Name one folder for the snapshots of this server's processes, in the environment that they inherit.

    This only chooses the name. The first engine or API server that needs the folder creates it, for its user alone.
    """
    if not os.environ.get(SNAPSHOT_DIR):
        folder = os.path.join(tempfile.gettempdir(), f"hitratio-{os.getuid()}-{os.getpid()}-{secrets.token_hex(4)}")
        os.environ[SNAPSHOT_DIR] = folder
        atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, owner: int) -> None:
    # Forked children also run their parent's exit handlers.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _typed(option: Option) -> Callable[[str], str]:
    def parse(text: str) -> str:
        try:
            option.parse(text)
        except SettingsError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return parse


class _Enable(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        os.environ[ENABLED] = "1"
        announce()


class _Remember(argparse.Action):
    def __init__(self, *args: Any, option: Option, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._option = option

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        os.environ[self._option.variable] = str(values)


def unused() -> str | None:
    """One line to log where settings are given and the plugin is off; otherwise None."""
    given = sorted(option.variable for option in OPTIONS if os.environ.get(option.variable))
    if not given or enabled():
        return None
    return f"{', '.join(given)}: without effect because the plugin is off; add --plugin hitratio (or set {ENABLED}=1)"

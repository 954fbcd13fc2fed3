"""The plugin's settings. They are environment variables, so that they reach every process of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from vllm_hitratio_plugin.numbers import number

ENABLED = "HITRATIO_ENABLED"
SNAPSHOT_DIR = "HITRATIO_SNAPSHOT_DIR"

#: Where the first exporter of a node listens, unless it is told otherwise.
DEFAULT_PORT = 9577


class SettingsError(ValueError):
    """An invalid setting; the message names the value and what is valid."""


def _number(text: str, what: str, use: str, **limits: Any) -> float:
    value = number(text, **limits)
    if value is None:
        raise SettingsError(f"{text!r} is not {what}: use {use}")
    return value


def ratio(text: str) -> float:
    """A hit ratio, above 0 and below 1."""
    return _number(text, "a hit ratio to aim at", "a number above 0 and below 1", above=0, below=1)


def port(text: str) -> int:
    """A TCP port, 0 to 65535; 0 turns the exporter off."""
    use = "a whole number from 0 to 65535 (0: no exporter)"
    return int(_number(text, "a port", use, least=0, most=65535, whole=True))


def window(text: str) -> float:
    """Seconds of the sliding window, 10 s to a week."""
    return _number(text, "a window in seconds", "a number from 10 to 604800", least=10, most=7 * 86400)


def interval(text: str) -> float:
    """Seconds between refreshes, 0.5 s to an hour."""
    return _number(text, "an interval in seconds", "a number from 0.5 to 3600", least=0.5, most=3600)


def blocks(text: str) -> int:
    """Blocks to remember, at least 1,000."""
    use = "a whole number from 1000 to 1e9"
    return int(_number(text, "a number of blocks", use, least=1000, most=1e9, whole=True))


def host(text: str) -> str:
    """An address to bind to."""
    if not text or any(character.isspace() for character in text):
        raise SettingsError(f"{text!r} is not an address: use a host name or an IP address, such as 127.0.0.1")
    return text


@dataclass(frozen=True)
class Option:
    """One setting: its flag is ``--hitratio-NAME``, its variable ``HITRATIO_NAME``."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        """The option of ``vllm serve``."""
        return f"--hitratio-{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"HITRATIO_{self.name.upper()}"


OPTIONS = (
    Option("target", ratio, None, "RATIO", "hit ratio for which a KV capacity is recommended, above 0 and below 1"),
    Option(
        "port",
        port,
        DEFAULT_PORT,
        "PORT",
        "the engine's exporter listens on PORT + local data-parallel rank, or the next free port; 0 turns it off",
    ),
    Option("host", host, "127.0.0.1", "ADDRESS", "address that the engine's exporter binds to"),
    Option("window", window, 600.0, "SECONDS", "minimum length of the sliding window"),
    Option(
        "interval", interval, 15.0, "SECONDS", "time between refreshes of the metrics, at most a fifth of the window"
    ),
    Option(
        "index_blocks", blocks, None, "BLOCKS", "blocks that the prefix tree remembers (default: 8 times the capacity)"
    ),
)


@dataclass(frozen=True)
class Settings:
    """The values of ``--hitratio-*`` and ``HITRATIO_*``."""

    target: float | None
    port: int
    host: str
    window: float
    interval: float
    index_blocks: int | None

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> tuple[Settings, list[str]]:
        """Read the variables; an invalid one keeps its default. Also returns a sentence per invalid variable."""
        env = os.environ if env is None else env
        values: dict[str, Any] = {}
        wrong = []
        for option in OPTIONS:
            text = env.get(option.variable, "").strip()
            values[option.name] = option.default
            try:
                if text:
                    values[option.name] = option.parse(text)
            except SettingsError as error:
                wrong.append(f"{option.variable}: {error}")
        # A short window is refreshed at least five times.
        values["interval"] = min(values["interval"], values["window"] / 5)
        return cls(**values), wrong


assert [option.name for option in OPTIONS] == [item.name for item in fields(Settings)]


def enabled(env: Mapping[str, str] | None = None) -> bool:
    """Whether the server of this process was started with the plugin enabled."""
    env = os.environ if env is None else env
    return env.get(ENABLED, "").strip().lower() in ("1", "true", "yes", "on")

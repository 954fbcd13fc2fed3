"""The ``hitratio`` command: one module a subcommand, imported when it is asked for."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from vllm_hitratio_plugin import __version__
from vllm_hitratio_plugin.cli.errors import UsageError

COMMANDS = {
    "estimate": "hit ratio, characteristic time and capacity for a target, from a few means",
    "replay": "a recorded or generated trace through a block pool: observed and predicted hit ratio",
    "experiment": "the paper's experiments, its convergence theorem, and traffic that moves",
    "plan": "what-ifs on a trace or a live engine: capacity, load, replicas, tiers; a report to hand on",
    "doctor": "why a running server's hit ratio is what it is: findings, with numbers and what to do",
    "grafana": "dashboards and alerts: into a running Grafana, or as files",
}
"""Subcommands and what they are for; a module of this name configures a parser and sets ``run``."""

EPILOG = "Bad input is answered with one sentence on stderr and exit code 2."


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise UsageError(message)


def build_parser(chosen: str | None) -> Parser:
    """The whole command line; only the subcommand ``chosen`` gets its arguments, for only its module is imported."""
    parser = Parser(prog="hitratio", description=__doc__, epilog=EPILOG, allow_abbrev=False)
    parser.description = "Predicted against observed prefix-cache hit ratio of vLLM, and the capacity a target needs."
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.", epilog=EPILOG, allow_abbrev=False
        )
        if name == chosen:
            import_module(f"{__name__}.{name}").configure(subparser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code.

    0, 2 for bad input, 130 for an interrupt, 141 where the reader of stdout went away (128 + signal, as shells say).
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((argument for argument in given if not argument.startswith("-")), None)
    name = f"hitratio {chosen}" if chosen in COMMANDS else "hitratio"
    try:
        options = build_parser(chosen).parse_args(given)
        code: int | None = options.run(options)
        sys.stdout.flush()
        return code or 0
    except UsageError as error:
        return _complain(f"{name}: {error}")
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        return _complain(f"{name}: {place}{(error.strerror or str(error)).lower()}")
    except KeyboardInterrupt:
        return 130


def _complain(sentence: str) -> int:
    sys.stderr.write(f"{' '.join(sentence.split())}\n")
    return 2

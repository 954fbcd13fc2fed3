"""`make demo`: two real servers under the same load, what the plugin says about them, and whether it is right."""

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from examples.demo.errors import DemoError
from examples.demo.interrupts import Interrupted, interruptible
from examples.demo.outcome import Outcome
from examples.demo.phases import Phases
from examples.demo.picture import draw
from examples.demo.report import Report, describe_load, table, write_json
from examples.demo.settings import BLOCK_SIZE, MAX_PROMPT_TOKENS, Settings
from examples.demo.workload import Timetable, draw_timetable
from vllm_hitratio_plugin.cli.values import count, from_zero, positive, ratio
from vllm_hitratio_plugin.numbers import MOST

LEAST_BLOCKS = MAX_PROMPT_TOKENS // BLOCK_SIZE + 1

#: Runs the load at a capacity, in blocks; the name is for its log and for the phases.
Trial = Callable[[int, str], Outcome]


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns 0, 1 if a check failed, 2 for bad input or a server that does not start."""
    settings, virtual = _parse(arguments)
    try:
        with interruptible():
            return run(settings, "--virtual" if virtual else why_virtual())
    except Interrupted as interrupted:
        print(f"\nstopped by {interrupted}; the servers are gone", file=sys.stderr)
        return interrupted.exit_code
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2


def run(settings: Settings, reason: str | None) -> int:
    """The whole demo; `reason` says why it runs in virtual time, None: on a real vLLM."""
    phases = Phases()
    settings.output.mkdir(parents=True, exist_ok=True)
    with phases.phase("load drawn"):
        timetable = draw_timetable(
            settings.seed, settings.load_seconds, settings.conversations_per_second, settings.think_seconds
        )
    print(
        f"load: {len(timetable.trace.prompts):,} requests in {settings.load_seconds:.0f} s"
        f" ({settings.conversations_per_second:g} conversations/s, think time {settings.think_seconds:g} s,"
        f" warm-up {settings.warmup_seconds:.0f} s), seed {settings.seed}"
    )
    if reason is not None:
        print(f"no real vLLM here ({reason}): the same load in virtual time, through the built-in block pool")
    trial = _real_trial(settings, timetable, phases) if reason is None else _virtual_trial(settings, timetable, phases)
    print(f"1. a cache of {settings.capacity_blocks:,} blocks")
    first = trial(settings.capacity_blocks, "server-1")
    second = None
    if first.recommended_blocks is not None:
        print(f"2. the capacity it recommends for a hit ratio of {settings.target:g}: {first.recommended_blocks:,}")
        second = trial(first.recommended_blocks, "server-2")
    report = Report(
        settings=settings,
        reason=reason,
        first=first,
        recommended=second,
        load=describe_load(timetable, first),
        phases=phases.seconds,
        seconds=phases.total,
    )
    draw(report, settings.output / "hitratio.png")
    write_json(report, settings.output / "report.json")
    print(f"{table(report)}\n\n{settings.output}/report.json, {settings.output}/hitratio.png")
    return 0 if all(check.passed for check in report.checks) else 1


def why_virtual() -> str | None:
    """Why no real vLLM can be started here; None where it can."""
    missing = [name for name in ("vllm", "torch", "aiohttp") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def _real_trial(settings: Settings, timetable: Timetable, phases: Phases) -> Trial:
    from examples.demo.tiny_model import write_tiny_model
    from examples.demo.trial import run_trial

    with phases.phase("model written"):
        model = write_tiny_model(settings.output / "model")
    return lambda capacity, name: run_trial(settings, timetable, model, capacity, name, phases)


def _virtual_trial(settings: Settings, timetable: Timetable, phases: Phases) -> Trial:
    from examples.demo.virtual import run_virtual_trial

    def trial(capacity: int, name: str) -> Outcome:
        with phases.phase(f"{name}: load"):
            return run_virtual_trial(settings, timetable, capacity)

    return trial


def _parse(arguments: list[str] | None) -> tuple[Settings, bool]:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    for flag, field, kind, words in (
        ("--output", "output", Path, "folder for everything that is written"),
        ("--seed", "seed", from_zero, "of the load"),
        ("--rate", "conversations_per_second", positive, "conversations per second"),
        ("--think", "think_seconds", positive, "mean think time, seconds"),
        ("--warmup", "warmup_seconds", positive, "seconds before the measured window"),
        ("--measured", "measured_seconds", positive, "seconds of the plugin's window"),
        ("--capacity", "capacity_blocks", _from_to(LEAST_BLOCKS, MOST), "of the first server, blocks"),
        ("--target", "target", ratio, "hit ratio to recommend a capacity for"),
        ("--port", "hitratio_port", _from_to(1, 65535), "of the engine's own exporter"),
    ):
        usual = getattr(Settings, field)
        parser.add_argument(flag, dest=field, type=kind, default=usual, metavar="X", help=f"{words} (%(default)s)")
    parser.add_argument("--virtual", action="store_true", help="in virtual time, even where vLLM is installed")
    options = vars(parser.parse_args(arguments))
    virtual: bool = options.pop("virtual")
    return Settings(**options), virtual


def _from_to(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = count(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least:,} to {most:,}, not {text!r}")
        return value

    return read


if __name__ == "__main__":
    sys.exit(main())

"""``make demo``: two real servers under the same load, what the plugin says of them, and whether it is right."""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path

from examples.demo.errors import DemoError
from examples.demo.interrupts import Interrupted, interruptible
from examples.demo.outcome import Outcome
from examples.demo.picture import draw
from examples.demo.report import Report, checks, describe_load, table, write_json
from examples.demo.settings import BLOCK_SIZE, MAX_PROMPT_TOKENS, Settings
from examples.demo.workload import Timetable, draw_timetable

STAMP = Path(".venv/stamp")

Trial = Callable[[int, str], Outcome]
"""Runs the load at a capacity, in blocks; the name is for its log."""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns 0, 1 where a check failed, 2 for bad input or a server that does not start."""
    options = _parse(arguments)
    try:
        with interruptible():
            return run(_settings(options), "--virtual" if options.virtual else why_virtual())
    except Interrupted as interrupted:
        print(f"\nstopped by {interrupted}; the servers are gone", file=sys.stderr)
        return interrupted.exit_code


def run(settings: Settings, reason: str | None) -> int:
    """The whole demo; `reason` says why in virtual time, None: on a real vLLM."""
    began = time.monotonic()
    settings.output.mkdir(parents=True, exist_ok=True)
    timetable = draw_timetable(
        settings.seed, settings.load_seconds, settings.conversations_per_second, settings.think_seconds
    )
    print(
        f"load: {len(timetable.trace.prompts):,} requests in {settings.load_seconds:.0f} s"
        f" ({settings.conversations_per_second:g} conversations/s, think time {settings.think_seconds:g} s,"
        f" warm-up {settings.warmup_seconds:.0f} s), seed {settings.seed}"
    )
    if reason is None:
        trial = _real_trial(settings, timetable)
    else:
        print(f"no real vLLM here ({reason}): the same load in virtual time, through the built-in block pool")
        trial = _virtual_trial(settings, timetable)
    try:
        print(f"1. a cache of {settings.capacity_blocks:,} blocks")
        first = trial(settings.capacity_blocks, "server-1")
        second = None
        if first.recommended_blocks is not None:
            print(f"2. the capacity it recommends for a hit ratio of {settings.target:g}: {first.recommended_blocks:,}")
            second = trial(first.recommended_blocks, "server-2")
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    report = Report(
        settings=settings,
        mode="vllm" if reason is None else "virtual-time",
        reason=reason,
        first=first,
        recommended=second,
        load=describe_load(timetable, first.sample, settings),
        seconds=time.monotonic() - began,
    )
    print(table(report))
    write_json(report, settings.output / "report.json")
    draw(report, settings.output / "hitratio.png")
    print(f"\n{settings.output}/report.json, {settings.output}/hitratio.png, {report.seconds:.0f} s")
    return 0 if all(check.passed for check in checks(report)) else 1


def why_virtual() -> str | None:
    """Why no real vLLM can be started here; None where it can."""
    missing = [name for name in ("vllm", "torch", "aiohttp") if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    if STAMP.is_file():
        for line in STAMP.read_text().splitlines():
            name, _, value = line.partition("=")
            if name == "engine" and value.startswith("none"):
                return value.removeprefix("none").strip().removeprefix("(").removesuffix(")") or "not installed"
    return f"{' and '.join(missing)} not installed"


def _real_trial(settings: Settings, timetable: Timetable) -> Trial:
    from examples.demo.tiny_model import write_tiny_model
    from examples.demo.trial import run_trial

    model = write_tiny_model(settings.output / "model")
    return lambda capacity, name: run_trial(settings, timetable, model, capacity, name)


def _virtual_trial(settings: Settings, timetable: Timetable) -> Trial:
    from examples.demo.virtual import run_virtual_trial

    return lambda capacity, name: run_virtual_trial(settings, timetable, capacity)


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        output=options.output,
        seed=options.seed,
        conversations_per_second=options.rate,
        think_seconds=options.think,
        warmup_seconds=options.warmup,
        measured_seconds=options.measured,
        capacity_blocks=options.capacity,
        target=options.target,
        hitratio_port=options.port,
    )


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    usual = Settings()
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    add = parser.add_argument
    add("--output", type=Path, default=usual.output, metavar="FOLDER", help="where everything is written (%(default)s)")
    add("--seed", type=_whole, default=usual.seed, help="of the load (%(default)s)")
    add("--rate", type=_positive, default=usual.conversations_per_second, help="conversations per second (%(default)s)")
    add("--think", type=_positive, default=usual.think_seconds, help="mean think time, seconds (%(default)s)")
    add("--warmup", type=_positive, default=usual.warmup_seconds, help="seconds (%(default)s)")
    add("--measured", type=_positive, default=usual.measured_seconds, help="seconds (%(default)s)")
    add("--capacity", type=_blocks, default=usual.capacity_blocks, help="of the first server, blocks (%(default)s)")
    add("--target", type=_share, default=usual.target, help="hit ratio to recommend a capacity for (%(default)s)")
    add("--port", type=_port, default=usual.hitratio_port, help="of the engine's own exporter (%(default)s)")
    add("--virtual", action="store_true", help="in virtual time, without vLLM, even where it is installed")
    return parser.parse_args(arguments)


def _number(text: str, wanted: str, holds: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not holds(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return value


def _positive(text: str) -> float:
    return _number(text, "a positive number", lambda value: 0 < value < float("inf"))


def _share(text: str) -> float:
    return _number(text, "a ratio between 0 and 1", lambda value: 0 < value < 1)


def _whole(text: str) -> int:
    return int(_number(text, "a whole number from 0 on", lambda value: value >= 0 and value == value // 1))


def _blocks(text: str) -> int:
    least = MAX_PROMPT_TOKENS // BLOCK_SIZE + 1
    return int(
        _number(
            text, f"a whole number of blocks, at least {least}", lambda value: value >= least and value == value // 1
        )
    )


def _port(text: str) -> int:
    return int(_number(text, "a port from 1 to 65535", lambda value: 1 <= value <= 65535 and value == value // 1))


if __name__ == "__main__":
    sys.exit(main())

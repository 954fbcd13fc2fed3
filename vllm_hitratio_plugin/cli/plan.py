"""``hitratio plan``: what-ifs on a trace or a live engine."""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_hitratio_plugin.cli.errors import UsageError, usage
from vllm_hitratio_plugin.cli.output import print_json, print_table
from vllm_hitratio_plugin.cli.values import MOST, count, counts, not_negative, pause, positive, ratio, seed

if TYPE_CHECKING:
    from vllm_hitratio_plugin.planning.change import Change
    from vllm_hitratio_plugin.planning.plan import Plan
    from vllm_hitratio_plugin.planning.subject import Subject
    from vllm_hitratio_plugin.replay.trace import Trace

FORMATS = ("auto", "mooncake", "lmcache", "turn-lengths")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_GENERATED = ("arrivals", "gap", "conversations", "warmup")
_MOST_REPLICAS = 10_000
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}(/.*)?")


def size(text: str) -> float:
    """Bytes, at least 1: a number, or one with KiB, MiB or GiB."""
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return positive(text[: -len(unit)].strip()) * factor
    return positive(text)


def sizes(text: str) -> list[float]:
    """Positive numbers with commas between."""
    return [positive(part) for part in text.split(",")]


def replicas(text: str) -> int:
    """How many share the traffic."""
    value = count(text)
    if value > _MOST_REPLICAS:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST_REPLICAS:,}, not {text!r}")
    return value


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "source",
        nargs="?",
        metavar="TRACE|URL",
        help="a trace file, gzip or not, or the address of the plugin's exporter (http://localhost:9577)",
    )
    parser.add_argument("--config", metavar="FILE", help="several models, TOML or JSON: see docs/what-ifs.md")
    parser.add_argument("--name", metavar="NAME", help="of the model, for the report")
    cache = parser.add_argument_group("the cache; the first capacity is today's (default for a URL: the engine's own)")
    cache.add_argument("--capacities", type=counts, metavar="N,N,...", help="blocks")
    cache.add_argument("--capacity-gib", type=sizes, metavar="G,G,...", help="the same in GiB, with --block-bytes")
    cache.add_argument("--block-bytes", type=size, metavar="BYTES", help="of one block on one worker, such as 18MiB")
    cache.add_argument("--target", type=ratio, action="append", metavar="H", help="a hit ratio to reach; repeatable")
    what_if = parser.add_argument_group("what if (all repeatable; a usual set if none is given)")
    what_if.add_argument("--load", type=positive, action="append", metavar="K", help="K times the traffic")
    what_if.add_argument("--think-time", type=positive, action="append", metavar="K", help="K times the think time")
    what_if.add_argument("--block-size", type=count, action="append", metavar="B", help="blocks of B tokens")
    what_if.add_argument("--replicas", type=replicas, action="append", metavar="R", help="R replicas share the traffic")
    what_if.add_argument("--routing", choices=("sticky", "random"), help="of the replicas (default: both)")
    what_if.add_argument("--second-tier-blocks", type=count, action="append", metavar="M", help="host memory or store")
    what_if.add_argument("--exclusive", action="store_true", help="the tier holds only what the first one evicted")
    what_if.add_argument("--pinned", type=not_negative, action="append", metavar="P", help="mean blocks in use")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument("--prefill-tokens-per-second", type=positive, metavar="X", help="to state prefill time saved")
    speed.add_argument("--prefill-seconds-per-token", type=positive, metavar="S", help="the same, as measured")
    trace = parser.add_argument_group("for a trace")
    trace.add_argument("--format", choices=FORMATS, default="auto", help="default: told by the first line")
    trace.add_argument(
        "--unhashed",
        choices=("tail", "head"),
        default="head",
        help="where partly filled blocks go when a request ends: head, as in vLLM from 0.24 on (default), or tail",
    )
    trace.add_argument("--service-time", metavar="LAW", help="seconds a request holds its blocks (default 0)")
    trace.add_argument("--seed", type=seed, default=0, help="of everything drawn (default 0)")
    trace.add_argument("--arrivals", metavar="PROCESS", help="turn lengths only: starts a second (default 1.5)")
    trace.add_argument("--gap", metavar="LAW", help="turn lengths only: seconds between prompts (default 135)")
    trace.add_argument("--conversations", type=count, metavar="K", help="turn lengths only: drawn (default 6000)")
    trace.add_argument(
        "--warmup", type=seed, metavar="K", help="turn lengths only: of them, not measured (default K/6)"
    )
    parser.add_argument("--timeout", type=pause, default=5.0, metavar="SECONDS", help="for a URL (default 5)")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.add_argument("--html", metavar="FILE", help="also write a report: one file, no network")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Plan and print."""
    from vllm_hitratio_plugin.planning.report import report

    if (options.source is None) == (options.config is None):
        raise UsageError("give one of a trace, the address of an exporter, or --config")
    entries = [options] if options.config is None else _configured(options.config)
    plans = [plan for entry in entries for plan in _plans(entry)]
    if options.html is not None:
        now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
        Path(options.html).write_text(report(plans, f"Made on {now} by hitratio plan."), encoding="utf-8")
    if options.json:
        print_json({"models": [plan.to_dict() for plan in plans]})
        return
    for number, plan in enumerate(plans):
        if number:
            print()
        _print(plan)
    if options.html is not None:
        print(f"\nThe report is in {options.html}.")


def _plans(options: argparse.Namespace) -> list[Plan]:
    from vllm_hitratio_plugin.planning.plan import plan

    subjects = _live(options) if _is_url(options.source) else [_recorded(options)]
    prefill = options.prefill_seconds_per_token
    if options.prefill_tokens_per_second is not None:
        prefill = 1 / options.prefill_tokens_per_second
    return [
        plan(
            subject,
            _changes(options, subject),
            targets=options.target or (),
            capacities=_capacities(options, subject.block_bytes)[1:],
            prefill_seconds_per_token=prefill,
        )
        for subject in subjects
    ]


def _is_url(source: str) -> bool:
    """With a scheme, or a host and port that is no file."""
    return source.startswith(("http://", "https://")) or (
        _HOST_AND_PORT.fullmatch(source) is not None and not Path(source).exists()
    )


def _changes(options: argparse.Namespace, subject: Subject) -> list[Change]:
    from vllm_hitratio_plugin.planning.change import Change
    from vllm_hitratio_plugin.planning.routing import ROUTINGS
    from vllm_hitratio_plugin.planning.second_tier import SecondTier

    routings = [routing for routing in ROUTINGS if options.routing in (None, routing)]
    changes = [Change(load=factor) for factor in options.load or ()]
    changes += [Change(think_time=factor) for factor in options.think_time or ()]
    changes += [Change(block_size=tokens) for tokens in options.block_size or ()]
    changes += [Change(replicas=r, routing=routing) for r in options.replicas or () for routing in routings]
    changes += [Change(pinned=blocks) for blocks in options.pinned or ()]
    tiers = [SecondTier(blocks, options.exclusive) for blocks in options.second_tier_blocks or ()]
    changes += [Change(second_tier=tier) for tier in tiers]
    for blocks in options.pinned or ():
        if not subject.demand.in_use_blocks and blocks:
            raise UsageError("no blocks are in use in this traffic, so --pinned can't change them (see --service-time)")
        if blocks >= subject.capacity_blocks:
            raise UsageError(f"--pinned {blocks:g}: the cache has only {subject.capacity_blocks:,.0f} blocks")
    if changes:
        return changes
    size = subject.demand.block_size
    usual = [Change(load=2), Change(think_time=2), Change(block_size=2 * size)]
    usual += [Change(replicas=2, routing="sticky"), Change(replicas=2, routing="random")]
    return [*usual, Change(second_tier=SecondTier(4 * subject.capacity_blocks))]


def _capacities(options: argparse.Namespace, block_bytes: float | None) -> list[float]:
    """Today's capacity and others, blocks; empty where none was given."""
    if options.capacities is not None and options.capacity_gib is not None:
        raise UsageError("give --capacities or --capacity-gib, not both")
    if options.capacities is not None:
        return list(options.capacities)
    if options.capacity_gib is None:
        return []
    if block_bytes is None:
        raise UsageError("--capacity-gib needs --block-bytes")
    blocks = [float(gib * _UNITS["GiB"] // block_bytes) for gib in options.capacity_gib]
    if not all(number <= MOST for number in blocks):  # so that nan fails too
        raise UsageError(f"--capacity-gib {max(options.capacity_gib):g} is more than {MOST:,} blocks: take less")
    if min(blocks) < 1:
        raise UsageError(f"a block of {block_bytes:,.0f} bytes does not fit into {min(options.capacity_gib):g} GiB")
    return blocks


def _live(options: argparse.Namespace) -> list[Subject]:
    from dataclasses import replace

    from vllm_hitratio_plugin.metrics.fetch import FetchError, fetch
    from vllm_hitratio_plugin.planning.subject import SubjectError, live_subject

    for name in (*_GENERATED, "service_time"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for traces; {options.source} is a server")
    with usage(FetchError, SubjectError):
        page = fetch(options.source, options.timeout)
        if not page.snapshots:
            raise UsageError(f"{options.source} runs without the plugin, so there is nothing to plan with")
        subjects = [live_subject(snapshot) for snapshot in page.snapshots]
    found = []
    for subject in subjects:
        block_bytes = options.block_bytes or subject.block_bytes
        capacity = (_capacities(options, block_bytes) or [subject.capacity_blocks])[0]
        # What was observed belongs to the engine's own capacity.
        observed = subject.observed if capacity == subject.capacity_blocks else None
        found.append(
            replace(
                subject,
                name=options.name or subject.name,
                block_bytes=block_bytes,
                capacity_blocks=capacity,
                observed=observed,
            )
        )
    return found


def _recorded(options: argparse.Namespace) -> Subject:
    from vllm_hitratio_plugin.cli.replay import duration_law
    from vllm_hitratio_plugin.planning.demand import Demand
    from vllm_hitratio_plugin.planning.observation import observe
    from vllm_hitratio_plugin.planning.subject import Subject

    capacities = _capacities(options, options.block_bytes)
    if not capacities:
        raise UsageError("a trace needs --capacities or --capacity-gib, today's first")
    service = duration_law(options.service_time)
    make = _trace(options)
    trace, window = make(None)
    capacity = round(capacities[0])
    if not trace.prompts:
        raise UsageError(f"{options.source}: there is no prompt in it")

    def look(blocks: int, trace: Trace) -> Any:
        return observe(trace, blocks, unhashed=options.unhashed, service=service, window=window, seed=options.seed)

    seen = look(capacity, trace)
    if seen.observed.hit_ratio is None:
        raise UsageError(f"{options.source}: no prompt fits into {capacity:,} blocks")

    def reblock(block_size: int) -> Demand | None:
        try:
            cut, _ = make(block_size)
        except ValueError:
            return None
        demand: Demand = look(max(capacity * trace.block_size // block_size, 1), cut).demand
        return demand

    notes = [f"Observed: a replay through an exact LRU of {capacity:,} blocks."]
    if seen.demand.left_out:
        notes.append(
            f"Left out of every figure are prompts that got no blocks: larger than {capacity:,} blocks: "
            f"{seen.observed.rejected:,}; still waiting at the end: {seen.observed.waiting:,}."
        )
    times = "" if trace.real_times else ", times drawn"
    span = f"{window[1] - window[0]:,.0f}" if window else f"{trace.duration:,.0f}"
    return Subject(
        options.name or Path(options.source).name,
        f"{seen.observed.prompts:,} prompts in {span} s{times}",
        seen.demand,
        capacity,
        options.block_bytes,
        seen.observed.hit_ratio,
        reblock,
        notes=notes,
    )


def _trace(options: argparse.Namespace) -> Callable[[int | None], tuple[Trace, tuple[float, float] | None]]:
    """How to have the trace in blocks of any size; ValueError for a size that it can't be cut into."""
    from vllm_hitratio_plugin.replay.arrivals import parse_arrivals
    from vllm_hitratio_plugin.replay.formats.source import read_source
    from vllm_hitratio_plugin.replay.generator import Traffic, draw_conversations, generate
    from vllm_hitratio_plugin.replay.law import parse_law
    from vllm_hitratio_plugin.replay.trace import Trace, TraceError

    with usage(TraceError):
        source = read_source(options.source, options.format)
    if isinstance(source, Trace):
        recorded = source
        for name in _GENERATED:
            if getattr(options, name) is not None:
                raise UsageError(f"--{name} is for turn lengths; {recorded.name} has its own times")
        return lambda block_size: (recorded if block_size is None else recorded.reblocked(block_size), None)
    lengths = source
    number = options.conversations or 6000
    with usage():
        chosen = draw_conversations(lengths, number, options.seed)
        traffic = Traffic(parse_arrivals(options.arrivals or "1.5"), parse_law(options.gap or "135"))

    def make(block_size: int | None) -> tuple[Trace, tuple[float, float] | None]:
        with usage():
            generated = generate(
                chosen,
                traffic,
                block_size=block_size or 128,
                seed=options.seed,
                warmup=number // 6 if options.warmup is None else options.warmup,
                name=options.source,
            )
        return generated.trace, generated.window

    return make


def _configured(path: str) -> list[argparse.Namespace]:
    """One set of options a model, each checked as on the command line."""
    from vllm_hitratio_plugin.cli import Parser

    text = Path(path).read_bytes()
    try:
        if path.endswith(".toml"):
            if sys.version_info < (3, 11):
                raise UsageError(f"{path}: TOML needs Python 3.11 or later; write the same as JSON")
            data = import_module("tomllib").loads(text.decode())
        else:
            data = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    models = data.get("model") if isinstance(data, dict) else None
    if not isinstance(models, list) or not models or not all(isinstance(model, dict) for model in models):
        raise UsageError(f"{path}: a list 'model' of one table a model is expected")
    found = []
    for number, model in enumerate(models, start=1):
        parser = Parser(prog="hitratio plan", allow_abbrev=False, add_help=False)
        configure(parser)
        place = f"{path}, model {model.get('name', number)}"
        source = model.get("source")
        if not isinstance(source, str) or {"config", "json", "html"} & model.keys():
            raise UsageError(
                f"{place}: 'source' (a trace or an address) is needed, and config, json, html can't be here"
            )
        nearby = Path(path).parent / source
        if nearby.exists() or not _is_url(source):
            source = str(nearby)
        arguments = [source]
        for key, value in model.items():
            if key != "source":
                arguments += _arguments(key, value)
        try:
            found.append(parser.parse_args(arguments))
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from None
    return found


def _arguments(key: str, value: Any) -> list[str]:
    """``load = [2, 3]`` → ``--load=2 --load=3``; ``capacities = [1, 2]`` → ``--capacities=1,2``; true → the flag."""
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, list) and flag in ("--capacities", "--capacity-gib"):
        return [f"{flag}={','.join(map(str, value))}"]
    return [f"{flag}={item}" for item in (value if isinstance(value, list) else [value])]


def _print(plan: Plan) -> None:
    from vllm_hitratio_plugin.planning.report import percent, size, summary, whole

    today = plan.today
    print(f"{plan.subject.name} ({plan.subject.source})")
    if plan.subject.observed is not None:
        print(f"Observed hit ratio {percent(plan.subject.observed)}, estimated {percent(today.hit_ratio)}.")
    for sentence in summary(plan):
        print(sentence)
    if plan.capacities:
        print()
        rows = []
        for blocks in (today.capacity_blocks, *plan.capacities):
            gain = plan.curve.gain(blocks, plan.step_blocks)
            gib = today.gib(blocks)
            rows.append(
                (
                    f"{blocks:,.0f}",
                    "-" if gib is None else f"{gib:,.1f}",
                    percent(plan.curve.hit_ratio(blocks)),
                    "-" if gain is None else f"{100 * gain:+.2f}",
                )
            )
        print_table(("blocks", "GiB", "hit ratio", "next GiB" if plan.subject.block_bytes else "next 1,000"), rows)
    if not plan.outcomes:
        return
    print()
    columns = ["what if", "hit ratio", "points", *(f"for {whole(need.target)}" for need in today.needs)]
    columns.append("tokens/h saved")
    if plan.prefill_seconds_per_token is not None:
        columns.append("prefill s/h saved")
    table = []
    for outcome in (today, *plan.outcomes):
        total = outcome.total
        change = None if total is None or today.total is None else 100 * (total - today.total)
        row = ["today" if outcome is today else outcome.words, percent(total)]
        row.append("-" if change is None else f"{change:+.1f}")
        row += [size(plan, outcome, need.blocks) for need in outcome.needs]
        tokens, spent = outcome.saved_tokens_per_hour, plan.prefill_seconds_saved_per_hour(outcome)
        row.append("-" if tokens is None else f"{tokens:,.0f}")
        if plan.prefill_seconds_per_token is not None:
            row.append("-" if spent is None else f"{spent:,.0f}")
        table.append(row)
    print_table(columns, table)
    for note in plan.subject.notes:
        print(note, file=sys.stderr)

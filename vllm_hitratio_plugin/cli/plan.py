"""``hitratio plan``: what-ifs on a trace or a live engine."""

from __future__ import annotations

import argparse
import datetime
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_hitratio_plugin.cli.errors import UsageError, usage
from vllm_hitratio_plugin.cli.output import print_json, print_table
from vllm_hitratio_plugin.cli.replay import add_clock_arguments, add_format_argument
from vllm_hitratio_plugin.cli.values import count, counts, from_zero, memory, not_negative, pause, positive, ratio
from vllm_hitratio_plugin.cli.values import positives as sizes

if TYPE_CHECKING:
    from vllm_hitratio_plugin.planning.options import PlanOptions
    from vllm_hitratio_plugin.planning.plan import Plan


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments. What is not given stays away from the namespace: the defaults are those of ``PlanOptions``."""
    from vllm_hitratio_plugin.planning.options import MOST_REPLICAS

    parser.argument_default = argparse.SUPPRESS
    parser.add_argument(
        "source",
        nargs="?",
        metavar="TRACE|URL",
        help="a trace file, gzip or not, or the address of vLLM or of the plugin's exporter (http://localhost:8000)",
    )
    parser.add_argument(
        "--config", metavar="FILE", default=None, help="several models, TOML or JSON: see docs/what-ifs.md"
    )
    parser.add_argument("--name", metavar="NAME", help="of the model, for the report")
    cache = parser.add_argument_group("the cache; the first capacity is today's (default for a URL: the engine's own)")
    cache.add_argument("--capacities", type=counts, metavar="N,N,...", help="blocks")
    cache.add_argument("--capacity-gib", type=sizes, metavar="G,G,...", help="the same in GiB, with --block-bytes")
    cache.add_argument("--block-bytes", type=memory, metavar="BYTES", help="per block on one worker, such as 18MiB")
    cache.add_argument("--target", type=ratio, action="append", metavar="H", help="a hit ratio to reach; repeatable")
    what_if = parser.add_argument_group("what if (all repeatable; a usual set if none is given)")
    what_if.add_argument("--load", type=positive, action="append", metavar="K", help="K times the traffic")
    what_if.add_argument("--think-time", type=positive, action="append", metavar="K", help="K times the think time")
    what_if.add_argument("--block-size", type=count, action="append", metavar="B", help="blocks of B tokens")
    what_if.add_argument(
        "--replicas",
        type=partial(count, most=MOST_REPLICAS),
        action="append",
        metavar="R",
        help="R replicas share the traffic",
    )
    what_if.add_argument("--routing", choices=("sticky", "random"), help="of the replicas (default: both)")
    what_if.add_argument("--second-tier-blocks", type=count, action="append", metavar="M", help="host memory or store")
    what_if.add_argument("--exclusive", action="store_true", help="the tier holds only what the first one evicted")
    what_if.add_argument("--in-use", type=not_negative, action="append", metavar="P", help="mean blocks in use")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--prefill-tokens-per-second", type=positive, metavar="X", help="to state the prefill time saved"
    )
    speed.add_argument("--prefill-seconds-per-token", type=positive, metavar="S", help="the same, as measured")
    trace = parser.add_argument_group("for a trace")
    add_format_argument(trace)
    trace.add_argument(
        "--unhashed",
        choices=("tail", "head"),
        help="where partly filled blocks go when a request ends: head, as in vLLM from 0.24 on (default), or tail",
    )
    trace.add_argument("--service-time", metavar="LAW", help="seconds that a request uses its blocks (default 0)")
    trace.add_argument("--seed", type=from_zero, help="of everything drawn (default 0)")
    add_clock_arguments(parser.add_argument_group("for turn lengths, which have no times"))
    parser.add_argument("--timeout", type=pause, metavar="SECONDS", help="for a URL (default 5)")
    parser.add_argument("--json", action="store_true", default=False, help="JSON on stdout")
    parser.add_argument("--html", metavar="FILE", default=None, help="also write a report: one file, no network")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Plan and print."""
    from vllm_hitratio_plugin.planning.options import PlanOptions, read_config
    from vllm_hitratio_plugin.planning.report import report

    given = {name: value for name, value in vars(options).items() if name in PlanOptions.__struct_fields__}
    if ("source" in given) == (options.config is not None):
        raise UsageError("give one of a trace, the address of a server, or --config")
    with usage():
        entries = [PlanOptions(**given)] if options.config is None else read_config(options.config)
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


def _plans(options: PlanOptions) -> list[Plan]:
    from vllm_hitratio_plugin.metrics.fetch import FetchError, fetch
    from vllm_hitratio_plugin.planning.options import is_address

    if not is_address(options.source):
        return [options.recorded()]
    options.check_live()
    with usage(FetchError):
        page = fetch(options.source, options.timeout, whole=True)
    return options.live(page.snapshots)


def _print(plan: Plan) -> None:
    from vllm_hitratio_plugin.planning.report import capacity_table, summary, what_if_table
    from vllm_hitratio_plugin.wording import fixed_percent

    print(f"{plan.subject.name} ({plan.subject.source})")
    if plan.subject.observed is not None:
        observed, estimated = fixed_percent(plan.subject.observed), fixed_percent(plan.today.hit_ratio)
        external = plan.subject.external
        tier = "" if external is None else f", and a second tier served another {fixed_percent(external)}"
        print(f"Observed hit ratio {observed}, estimated {estimated}{tier}.")
    for sentence in summary(plan):
        print(sentence)
    if plan.capacities:
        print()
        print_table(*capacity_table(plan, [plan.today.capacity_blocks, *plan.capacities]))
    print()
    print_table(*what_if_table(plan))
    for note in plan.subject.notes:
        print(note, file=sys.stderr)

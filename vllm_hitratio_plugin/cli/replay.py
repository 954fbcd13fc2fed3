"""``hitratio replay``: a trace through a block pool, at several capacities."""

import argparse
from typing import TYPE_CHECKING, Any

from vllm_hitratio_plugin.cli.errors import UsageError, usage
from vllm_hitratio_plugin.cli.output import percent, points, print_facts, print_json, print_table, seconds
from vllm_hitratio_plugin.cli.progress import progress
from vllm_hitratio_plugin.cli.values import count, counts, not_negative, seed

if TYPE_CHECKING:
    from vllm_hitratio_plugin.replay.comparison import Comparison
    from vllm_hitratio_plugin.replay.law import Law
    from vllm_hitratio_plugin.replay.statistics import TraceStatistics
    from vllm_hitratio_plugin.replay.trace import Trace
    from vllm_hitratio_plugin.replay.turns import Turns

FORMATS = ("auto", "mooncake", "lmcache", "turn-lengths")

_GENERATED = ("arrivals", "gap", "response_time", "conversations", "warmup")
"""Options that give times to turn lengths; by default the paper's setting."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a file, gzip or not; '-' is stdin")
    parser.add_argument("--format", choices=FORMATS, default="auto", help="default: told by the first line")
    parser.add_argument("--capacities", type=counts, required=True, metavar="N,N,...", help="blocks")
    parser.add_argument(
        "--block-size", type=count, metavar="B", help="tokens a block (default: the trace's own, or 128)"
    )
    add_pool_arguments(parser)
    parser.add_argument("--seed", type=seed, default=0, help="of everything drawn (default 0)")
    generated = parser.add_argument_group("for turn lengths, which have no times")
    generated.add_argument(
        "--arrivals",
        metavar="PROCESS",
        help="conversation starts a second: 1.5, ramp:FIRST:LAST:AFTER:SECONDS, diurnal:MEAN:RATIO:PERIOD or "
        "burst:BASE:PEAK:EVERY:SECONDS (default 1.5)",
    )
    generated.add_argument(
        "--gap", metavar="LAW", help="seconds between prompts: 135 (exponential), lognormal:135:1.2, ... (default 135)"
    )
    add_response_argument(generated)
    generated.add_argument("--conversations", type=count, metavar="K", help="drawn, of 2 turns or more (default 6000)")
    generated.add_argument("--warmup", type=seed, metavar="K", help="of them, before the measurement (default a sixth)")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.set_defaults(run=run)


def add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what describes the cache."""
    parser.add_argument(
        "--pool",
        choices=("builtin", "vllm"),
        default="builtin",
        help="vLLM's block pool rewritten (default), or the installed vLLM's own; they agree hit by hit",
    )
    parser.add_argument(
        "--unhashed",
        choices=("tail", "head"),
        default="tail",
        help="where partly filled blocks go when a request ends: tail, as in vLLM up to 0.23 and the paper (default), "
        "or head, as from 0.24 on",
    )
    parser.add_argument(
        "--service-time",
        metavar="LAW",
        help="seconds a request holds its blocks: 0 (default), 10 (exponential), fixed:10, lognormal:10:0.5, ...",
    )


def add_response_argument(parser: argparse._ActionsContainer) -> None:
    """Add how long answers take."""
    parser.add_argument(
        "--response-time",
        metavar="LAW",
        help="seconds until an answer is complete: the next prompt waits for it, W = max(response, gap) (default 0)",
    )


def duration_law(text: str | None) -> "Law | None":
    """The law of ``--service-time`` or ``--response-time``; None for no time at all."""
    from vllm_hitratio_plugin.replay.law import parse_law

    if text is None:
        return None
    try:
        if not_negative(text) == 0:
            return None
    except argparse.ArgumentTypeError:
        pass
    with usage():
        return parse_law(text)


def run(options: argparse.Namespace) -> None:
    """Replay and print."""
    from vllm_hitratio_plugin.replay.comparison import compare
    from vllm_hitratio_plugin.replay.formats.source import read_source
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPoolError
    from vllm_hitratio_plugin.replay.statistics import trace_statistics
    from vllm_hitratio_plugin.replay.trace import Trace, TraceError

    service = duration_law(options.service_time)
    window: tuple[float, float] | None = None
    with usage(TraceError):
        source = read_source(options.trace, options.format, options.block_size)
    if isinstance(source, Trace):
        for name in _GENERATED:
            if getattr(options, name) is not None:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is for turn lengths; {source.name} has its own times")
        trace = source
    else:
        trace, window = _generate(source, options)

    results = []
    with progress(len(trace.prompts) * len(options.capacities), "prompts") as tick, usage(VllmPoolError):
        for capacity in options.capacities:
            results.append(
                compare(
                    trace,
                    capacity,
                    pool=options.pool,
                    unhashed=options.unhashed,
                    service=service,
                    window=window,
                    seed=options.seed,
                    tick=tick,
                )
            )
    statistics = trace_statistics(trace)
    if options.json:
        print_json(
            {
                "trace": {
                    "name": trace.name,
                    "block_size": trace.block_size,
                    "real_times": trace.real_times,
                    "empty_prompts": trace.empty_prompts,
                },
                "pool": options.pool,
                "unhashed": options.unhashed,
                "service_time": service.name if service is not None else None,
                "seed": options.seed,
                "window_s": list(window) if window is not None else None,
                "workload": _workload(statistics, results),
                "results": [result_json(result) for result in results],
            }
        )
    else:
        _print(trace, statistics, results)


def result_json(result: "Comparison") -> dict[str, Any]:
    """What ``replay`` and ``experiment`` say of one run."""
    observed, estimate = result.observed, result.estimate
    return {
        "capacity_blocks": result.capacity_blocks,
        "observed": observed.hit_ratio,
        "predicted": dict(result.predicted),
        "error": result.error,
        "error_stderr": estimate.divergence_stderr,
        "characteristic_time_s": estimate.characteristic_time,
        "prompts": observed.prompts,
        "prompt_blocks": observed.prompt_blocks,
        "mean_pinned_blocks": observed.mean_in_use_blocks,
        "delayed_prompts": observed.delayed,
        "rejected_prompts": observed.rejected,
        "waiting_prompts": observed.waiting,
    }


def _generate(conversations: "list[Turns]", options: argparse.Namespace) -> "tuple[Trace, tuple[float, float]]":
    from vllm_hitratio_plugin.replay.arrivals import parse_arrivals
    from vllm_hitratio_plugin.replay.generator import Traffic, draw_conversations, generate
    from vllm_hitratio_plugin.replay.law import parse_law

    number = options.conversations or 6000
    with usage():
        generated = generate(
            draw_conversations(conversations, number, options.seed),
            Traffic(
                parse_arrivals(options.arrivals or "1.5"),
                parse_law(options.gap or "135"),
                duration_law(options.response_time),
            ),
            block_size=options.block_size or 128,
            seed=options.seed,
            warmup=number // 6 if options.warmup is None else options.warmup,
            name=options.trace,
        )
    return generated.trace, generated.window


def _workload(statistics: "TraceStatistics", results: "list[Comparison]") -> dict[str, Any]:
    # The largest capacity's monitor remembers most, so its means are the least truncated.
    estimate = max(results, key=lambda result: result.capacity_blocks).estimate
    return {
        "prompts": statistics.prompts,
        "prompt_tokens": statistics.prompt_tokens,
        "prompt_blocks": statistics.prompt_blocks,
        "distinct_blocks": statistics.distinct_blocks,
        "reuse_ceiling": statistics.reuse_ceiling,
        "conversations": statistics.conversations,
        "duration_s": statistics.duration_s,
        "arrival_rate": estimate.arrival_rate,
        "history_workload": estimate.history_workload,
        "reusable_workload": estimate.reusable_workload,
        "lifetime_blocks": estimate.lifetime_blocks,
        "turns": estimate.turns,
    }


def _print(trace: "Trace", statistics: "TraceStatistics", results: "list[Comparison]") -> None:
    facts = [
        ("prompts", f"{statistics.prompts:,}", f"in {statistics.duration_s:,.0f} s"),
        ("prompt blocks", f"{statistics.prompt_blocks:,}", f"of {trace.block_size} tokens"),
        ("reuse ceiling", percent(statistics.reuse_ceiling), "an unlimited cache"),
    ]
    if trace.empty_prompts:
        facts.append(("left out", f"{trace.empty_prompts:,}", "recorded prompts without a token"))
    rejected = max(result.observed.rejected for result in results)
    if rejected:
        facts.append(("rejected", f"{rejected:,}", "prompts larger than the smallest capacity"))
    waiting = max(result.observed.waiting for result in results)
    if waiting:
        facts.append(("still waiting", f"{waiting:,}", "prompts without blocks at the end, at the worst capacity"))
    delayed = max(result.observed.delayed for result in results)
    if delayed:
        facts.append(("waited", f"{delayed:,}", "prompts that had to wait for blocks, at the worst capacity"))
    print_facts(facts)
    print()
    left_out = rejected or waiting
    columns = ("blocks", "observed", "reuse time", "error, points", "mean field", "T_C")
    print_table(
        (*columns, "rejected", "waiting") if left_out else columns,
        [
            (
                f"{result.capacity_blocks:,}",
                percent(result.observed.hit_ratio),
                percent(result.predicted["reuse_time"]),
                points(result.error),
                percent(result.predicted["mean_field"]),
                seconds(result.estimate.characteristic_time),
                *((f"{result.observed.rejected:,}", f"{result.observed.waiting:,}") if left_out else ()),
            )
            for result in results
        ],
    )

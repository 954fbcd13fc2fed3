"""``hitratio replay``: a trace through a block pool, at several capacities."""

import argparse
from typing import TYPE_CHECKING, Any

from vllm_hitratio_plugin.cli.errors import usage
from vllm_hitratio_plugin.cli.output import print_facts, print_json, print_table, seconds
from vllm_hitratio_plugin.cli.progress import progress
from vllm_hitratio_plugin.cli.values import count, counts, from_zero
from vllm_hitratio_plugin.wording import fixed_percent, signed_points

if TYPE_CHECKING:
    from vllm_hitratio_plugin.replay.comparison import Comparison
    from vllm_hitratio_plugin.replay.statistics import TraceStatistics
    from vllm_hitratio_plugin.replay.trace import Trace


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a file, gzip or not; '-' is stdin")
    add_format_argument(parser, default="auto")
    parser.add_argument("--capacities", type=counts, required=True, metavar="N,N,...", help="blocks")
    parser.add_argument(
        "--block-size", type=count, metavar="B", help="tokens per block (default: the trace's own, or 128)"
    )
    add_pool_arguments(parser)
    parser.add_argument("--seed", type=from_zero, default=0, help="of everything drawn (default 0)")
    generated = parser.add_argument_group("for turn lengths, which have no times")
    add_clock_arguments(generated)
    add_response_argument(generated)
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.set_defaults(run=run)


def add_format_argument(parser: argparse._ActionsContainer, **default: str) -> None:
    """Add the format of a trace."""
    from vllm_hitratio_plugin.replay.formats.source import FORMATS

    parser.add_argument("--format", choices=FORMATS, help="default: told by the first line", **default)  # type: ignore[arg-type]


def add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what describes the cache."""
    parser.add_argument(
        "--pool",
        choices=("builtin", "vllm"),
        default="builtin",
        help="vLLM's block pool reimplemented (default), or the installed vLLM's own; they agree hit by hit",
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
        help="seconds that a request uses its blocks: 0 (default), 10 (exponential), fixed:10, lognormal:10:0.5, ...",
    )


def add_clock_arguments(parser: argparse._ActionsContainer) -> None:
    """Add what gives times to turn lengths."""
    parser.add_argument(
        "--arrivals",
        metavar="PROCESS",
        help="conversation starts per second: 1.5, ramp:FIRST:LAST:AFTER:SECONDS, diurnal:MEAN:RATIO:PERIOD or "
        "burst:BASE:PEAK:EVERY:SECONDS (default 1.5)",
    )
    parser.add_argument(
        "--interarrival",
        metavar="LAW",
        help="seconds between prompts of a conversation: 135 (exponential), lognormal:135:1.2, ... (default 135)",
    )
    parser.add_argument("--conversations", type=count, metavar="K", help="drawn, of 2 turns or more (default 6000)")
    parser.add_argument(
        "--warmup", type=from_zero, metavar="K", help="of them, before the measurement (default a sixth)"
    )


def add_response_argument(parser: argparse._ActionsContainer) -> None:
    """Add how long answers take."""
    parser.add_argument(
        "--response-time",
        metavar="LAW",
        help="seconds until an answer is complete: the next prompt waits for it, W = max(response, interarrival) "
        "(default 0)",
    )


def run(options: argparse.Namespace) -> None:
    """Replay and print."""
    from vllm_hitratio_plugin.replay.comparison import compare
    from vllm_hitratio_plugin.replay.law import parse_duration
    from vllm_hitratio_plugin.replay.pools.vllm_pool import VllmPoolError
    from vllm_hitratio_plugin.replay.source import Clock, TraceSource
    from vllm_hitratio_plugin.replay.statistics import trace_statistics

    with usage():
        service = parse_duration(options.service_time)
        clock = Clock(*(getattr(options, name) for name in Clock.__dataclass_fields__))
        source = TraceSource(
            options.trace, options.format, block_size=options.block_size, clock=clock, seed=options.seed
        )
        trace, window = source.trace()
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
    if not options.json:
        _print(trace, statistics, results)
        return
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


def _workload(statistics: "TraceStatistics", results: "list[Comparison]") -> dict[str, Any]:
    # The largest capacity's monitor remembers most, so its means are the least truncated.
    estimate = max(results, key=lambda result: result.capacity_blocks).estimate
    measured = ("prompts", "prompt_tokens", "prompt_blocks", "distinct_blocks", "reuse_ceiling")
    means = ("arrival_rate", "history_workload", "reusable_workload", "lifetime_blocks", "turns")
    return {
        **{name: getattr(statistics, name) for name in (*measured, "conversations", "duration_s")},
        **{name: getattr(estimate, name) for name in means},
    }


def _print(trace: "Trace", statistics: "TraceStatistics", results: "list[Comparison]") -> None:
    rejected, waiting, delayed = (
        max(getattr(result.observed, name) for result in results) for name in ("rejected", "waiting", "delayed")
    )
    facts = [
        ("prompts", f"{statistics.prompts:,}", f"in {statistics.duration_s:,.0f} s"),
        ("prompt blocks", f"{statistics.prompt_blocks:,}", f"of {trace.block_size} tokens"),
        ("reuse ceiling", fixed_percent(statistics.reuse_ceiling, 2), "an unlimited cache"),
    ]
    for number, name, remark in (
        (trace.empty_prompts, "left out", "recorded prompts without a token"),
        (rejected, "rejected", "prompts larger than the smallest capacity"),
        (waiting, "still waiting", "prompts without blocks at the end, at the worst capacity"),
        (delayed, "waited", "prompts that had to wait for blocks, at the worst capacity"),
    ):
        if number:
            facts.append((name, f"{number:,}", remark))
    print_facts(facts)
    print()
    left_out = rejected or waiting
    columns = ("blocks", "observed", "reuse time", "error, points", "mean field", "T_C")
    print_table(
        (*columns, "rejected", "waiting") if left_out else columns,
        [
            (
                f"{result.capacity_blocks:,}",
                fixed_percent(result.observed.hit_ratio, 2),
                fixed_percent(result.predicted["reuse_time"], 2),
                signed_points(result.error),
                fixed_percent(result.predicted["mean_field"], 2),
                seconds(result.estimate.characteristic_time),
                *((f"{result.observed.rejected:,}", f"{result.observed.waiting:,}") if left_out else ()),
            )
            for result in results
        ],
    )

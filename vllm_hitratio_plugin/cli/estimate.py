"""``hitratio estimate``: the paper's estimator, from means or from conversations."""

import argparse
import math
import sys
from typing import TYPE_CHECKING

from vllm_hitratio_plugin.cli.errors import UsageError, usage
from vllm_hitratio_plugin.cli.output import percent, print_facts, print_json, seconds
from vllm_hitratio_plugin.cli.values import count, positive, ratio

if TYPE_CHECKING:
    from vllm_hitratio_plugin.model.mean_field import CapacityAnswer
    from vllm_hitratio_plugin.model.workload import Workload

_MEANS = ("history_workload", "reusable_workload", "lifetime_blocks")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--arrival-rate", type=positive, required=True, metavar="L0", help="conversations per second")
    means = parser.add_argument_group("the workload, as means over conversations in blocks")
    means.add_argument("--history-workload", type=positive, metavar="A_R", help="prompt blocks of all turns")
    means.add_argument(
        "--reusable-workload", type=positive, metavar="A_H", help="of them, full blocks of turns that have a successor"
    )
    means.add_argument("--lifetime-blocks", type=positive, metavar="E_B", help="blocks of the last prompt, E[B]")
    source = parser.add_argument_group("or conversations, from which the means are taken")
    source.add_argument(
        "--conversations", metavar="FILE", help="turn lengths (JSONL), or ShareGPT JSON with --tokenizer; '-' is stdin"
    )
    source.add_argument("--tokenizer", metavar="PATH", help="a tokenizer.json for ShareGPT texts")
    source.add_argument(
        "--minimum-turns", type=count, default=1, metavar="M", help="leave shorter conversations out (the paper: 2)"
    )
    source.add_argument("--block-size", type=count, default=128, metavar="B", help="tokens a block (default 128)")
    gap = parser.add_mutually_exclusive_group(required=True)
    gap.add_argument("--mean-gap", type=positive, metavar="S", help="mean seconds between prompts, exponential")
    gap.add_argument("--gap", metavar="LAW", help="law of the gaps, e.g. lognormal:135:1.2 or weibull:135:0.7")
    parser.add_argument("--capacity-blocks", type=positive, required=True, metavar="N", help="blocks the cache holds")
    parser.add_argument("--target", type=ratio, metavar="H", help="also the capacity for this hit ratio, 0 to 1")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the estimate."""
    from vllm_hitratio_plugin.model.mean_field import MeanField
    from vllm_hitratio_plugin.replay.law import exponential, parse_law

    with usage():
        workload = _workload(options)
        gap = parse_law(options.gap) if options.gap is not None else exponential(options.mean_gap)
        model = MeanField(workload, gap.distribution)
        hit_ratio = model.hit_ratio(options.capacity_blocks)
    answer = model.capacity_for(options.target) if options.target is not None else None
    survival = model.characteristic_time(options.capacity_blocks)
    needed = None if answer is None or answer.blocks is None else math.ceil(answer.blocks)
    if options.json:
        print_json(
            {
                "hit_ratio": hit_ratio,
                "characteristic_time_s": survival,
                "reuse_potential": model.reuse_potential,
                "capacity_blocks": options.capacity_blocks,
                "target": options.target,
                "capacity_for_target_blocks": needed,
                "reason": "no --target was given" if answer is None else answer.reason,
                "workload": {
                    "arrival_rate": workload.arrival_rate,
                    "history_workload": workload.history_workload,
                    "reusable_workload": workload.reusable_workload,
                    "lifetime_blocks": workload.lifetime_blocks,
                    "turns": workload.turns,
                    "mean_gap_s": gap.mean,
                    "gap": gap.name,
                },
            }
        )
        return
    facts = [
        ("hit ratio", percent(hit_ratio), f"of prompt blocks, with {options.capacity_blocks:,.0f} blocks"),
        ("reuse potential", percent(model.reuse_potential), "no capacity hits more"),
        ("characteristic time", seconds(survival), "an unused block survives that long"),
    ]
    if options.conversations is not None:
        facts += [
            ("A_R", f"{workload.history_workload:.4f}", "blocks a conversation"),
            ("A_H^hash", f"{workload.reusable_workload:.4f}", "blocks a conversation"),
            ("E[B]", f"{workload.lifetime_blocks:.4f}", "blocks"),
            ("E[M]", f"{workload.turns:.4f}", "turns"),
        ]
    if answer is not None:
        facts.append(_target(options.target, answer, needed))
    print_facts(facts)


def _target(target: float, answer: "CapacityAnswer", needed: int | None) -> tuple[str, str, str]:
    name = f"capacity for {percent(target)}"
    if needed is None:
        return name, "none", answer.reason or ""
    return name, f"{needed:,}", "blocks"


def _workload(options: argparse.Namespace) -> "Workload":
    from vllm_hitratio_plugin.model.workload import Workload

    given = [name for name in _MEANS if getattr(options, name) is not None]
    if options.conversations is not None:
        if given:
            raise UsageError(f"--conversations already gives what --{given[0].replace('_', '-')} says")
        return _from_conversations(options)
    if options.tokenizer is not None:
        raise UsageError("--tokenizer is for --conversations")
    missing = [f"--{name.replace('_', '-')}" for name in _MEANS if name not in given]
    if missing:
        raise UsageError(f"{' and '.join(missing)} (or --conversations) must be given")
    return Workload(options.arrival_rate, *(getattr(options, name) for name in _MEANS))


def _from_conversations(options: argparse.Namespace) -> "Workload":
    from vllm_hitratio_plugin.replay.formats.conversations import read_conversations
    from vllm_hitratio_plugin.replay.turns import conversation_sample

    everything, empty = read_conversations(options.conversations, options.tokenizer)
    conversations = [turns for turns in everything if len(turns) >= options.minimum_turns]
    if not conversations:
        raise UsageError(f"{options.conversations}: no conversation of {options.minimum_turns} turns or more")
    if empty:
        print(f"note: {empty} of {empty + len(everything)} entries hold no conversation", file=sys.stderr)
    return conversation_sample(conversations, options.block_size).workload(options.arrival_rate)

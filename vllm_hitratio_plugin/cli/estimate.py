"""``hitratio estimate``: the paper's estimator, from means or from conversations."""

import argparse
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from vllm_hitratio_plugin.cli.errors import UsageError, usage
from vllm_hitratio_plugin.cli.output import print_facts, print_json, seconds
from vllm_hitratio_plugin.cli.values import count, positive, ratio
from vllm_hitratio_plugin.wording import fixed_percent

if TYPE_CHECKING:
    from vllm_hitratio_plugin.model.bounds import Bound
    from vllm_hitratio_plugin.model.conversation_sample import ConversationSample
    from vllm_hitratio_plugin.model.interarrival import Interarrival
    from vllm_hitratio_plugin.model.workload import Workload

_MEANS = ("history_workload", "reusable_workload", "lifetime_blocks")

_BOUNDED = {
    "displacement": "P(|D(T_C) - N| > 10 % of N)",
    "displacement_path": "P(|D - d| > 10 % of N before T_C)",
    "eviction_time": "P(|eviction time - T_C| > 10 % of T_C)",
    "hit_ratio": "|h(N) - h(∞)|",
    "hit_ratio_exact_tail": "|h(N) - h(∞)|, exact tail",
}
"""What each of the finite-N bounds is on."""


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
    source.add_argument("--block-size", type=count, default=128, metavar="B", help="tokens per block (default 128)")
    law = parser.add_mutually_exclusive_group(required=True)
    law.add_argument(
        "--mean-interarrival", type=positive, metavar="S", help="mean seconds between prompts of a conversation"
    )
    law.add_argument(
        "--interarrival", metavar="LAW", help="their law, such as lognormal:135:1.2 or weibull:135:0.7 (or exponential)"
    )
    parser.add_argument("--capacity-blocks", type=positive, required=True, metavar="N", help="blocks the cache holds")
    parser.add_argument("--target", type=ratio, metavar="H", help="also the capacity for this hit ratio, 0 to 1")
    parser.add_argument(
        "--bounds",
        action="store_true",
        help="also how far a cache of this size may be from the estimate; with --conversations",
    )
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the estimate."""
    from vllm_hitratio_plugin.model.mean_field import MeanField
    from vllm_hitratio_plugin.replay.law import exponential, parse_law

    sample = _sample(options)
    with usage():
        workload = _workload(options) if sample is None else sample.workload(options.arrival_rate)
        law = (
            exponential(options.mean_interarrival) if options.interarrival is None else parse_law(options.interarrival)
        )
        model = MeanField(workload, law.distribution)
        hit_ratio = model.hit_ratio(options.capacity_blocks)
        bounds = _bounds(options, sample, law.distribution) if options.bounds else None
    answer = model.capacity_for(options.target) if options.target is not None else None
    time = model.characteristic_time(options.capacity_blocks)
    needed = None if answer is None or answer.blocks is None else math.ceil(answer.blocks)
    if options.json:
        result = {
            "hit_ratio": hit_ratio,
            "characteristic_time_s": time,
            "reuse_potential": model.reuse_potential,
            "capacity_blocks": options.capacity_blocks,
            "target": options.target,
            "capacity_for_target_blocks": needed,
            "reason": "no --target was given" if answer is None else answer.reason,
            "workload": {**asdict(workload), "mean_gap_s": law.mean, "gap": law.name},
        }
        if bounds is not None:
            result["bounds"] = {name: {**asdict(bound), "vacuous": bound.vacuous} for name, bound in bounds.items()}
        print_json(result)
        return
    facts = [
        ("hit ratio", fixed_percent(hit_ratio, 2), f"of prompt blocks, with {options.capacity_blocks:,.0f} blocks"),
        ("reuse potential", fixed_percent(model.reuse_potential, 2), "no capacity hits more"),
        ("characteristic time", seconds(time), "an unused block stays cached that long"),
    ]
    if sample is not None:
        facts += [
            ("A_R", f"{workload.history_workload:.4f}", "blocks per conversation"),
            ("A_H^hash", f"{workload.reusable_workload:.4f}", "blocks per conversation"),
            ("E[B]", f"{workload.lifetime_blocks:.4f}", "blocks"),
            ("E[M]", f"{workload.turns:.4f}", "turns"),
        ]
    if answer is not None:
        name = f"capacity for {fixed_percent(options.target, 2)}"
        facts.append((name, "none", answer.reason or "") if needed is None else (name, f"{needed:,}", "blocks"))
    print_facts(facts)
    if bounds is not None:
        print("\nBounds for a cache of this size (docs/model.md, Finite-N bounds):")
        print_facts([_bound(name, bound) for name, bound in bounds.items()])


def _workload(options: argparse.Namespace) -> "Workload":
    from vllm_hitratio_plugin.model.workload import Workload

    missing = [f"--{name.replace('_', '-')}" for name in _MEANS if getattr(options, name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} (or --conversations) must be given")
    return Workload(options.arrival_rate, *(getattr(options, name) for name in _MEANS))


def _sample(options: argparse.Namespace) -> "ConversationSample | None":
    """The conversations of a file; None where none was given."""
    from vllm_hitratio_plugin.replay.formats.conversations import read_conversations
    from vllm_hitratio_plugin.replay.turns import conversation_sample

    if options.conversations is None:
        for name in ("tokenizer", "bounds"):
            if getattr(options, name):
                raise UsageError(f"--{name} is for --conversations")
        return None
    given = [name for name in _MEANS if getattr(options, name) is not None]
    if given:
        raise UsageError(f"--conversations already gives what --{given[0].replace('_', '-')} says")
    with usage():
        everything, empty = read_conversations(options.conversations, options.tokenizer)
    conversations = [turns for turns in everything if len(turns) >= options.minimum_turns]
    if not conversations:
        raise UsageError(f"{options.conversations}: no conversation of {options.minimum_turns} turns or more")
    if empty:
        print(f"note: {empty} of {empty + len(everything)} entries hold no conversation", file=sys.stderr)
    return conversation_sample(conversations, options.block_size)


def _bounds(
    options: argparse.Namespace, sample: "ConversationSample | None", law: "Interarrival"
) -> "dict[str, Bound]":
    from vllm_hitratio_plugin.model.bounds import FiniteBounds

    assert sample is not None
    return FiniteBounds(sample, law, options.arrival_rate, options.capacity_blocks).all()


def _bound(name: str, bound: "Bound") -> tuple[str, str, str]:
    remark = bound.reason or ("says nothing: it is above 1" if bound.vacuous else "")
    return _BOUNDED[name], f"≤ {bound.value:.3g}", f"({bound.equation}) {remark}"

"""The plan for people: sentences and tables for the terminal, and one HTML file to be printed and handed on.

The page has its figures inline, and neither scripts nor links to the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from vllm_hitratio_plugin import svg
from vllm_hitratio_plugin.planning.capacity_curve import GIB
from vllm_hitratio_plugin.planning.plan import Plan, WhatIf
from vllm_hitratio_plugin.wording import NONE, duration, fixed_percent, large_count, memory, signed_points

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Columns and rows."""


def report(plans: Sequence[Plan], made: str) -> str:
    """The page; ``made`` says when and from what, in words."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vllm_hitratio_plugin.planning", ""), autoescape=True, trim_blocks=True
    )
    return environment.get_template("report.html.j2").render(
        title=f"KV-cache plan: {plans[0].subject.name}" if len(plans) == 1 else "KV-cache plan",
        made=made,
        figure_style=Markup(svg.STYLE),
        overview=_overview(plans) if len(plans) > 1 else None,
        models=[_model(plan) for plan in plans],
    )


def summary(plan: Plan) -> list[str]:
    """What the plan comes to, a sentence each."""
    today, curve = plan.today, plan.curve
    left_out = today.demand.left_out
    most = (
        f" in the prompts that got blocks; without blocks, and left out: {left_out:,}"
        if left_out
        else ", and no capacity serves more"
    )
    said = [
        f"Today's cache of {_size(plan, today, today.capacity_blocks)} serves {fixed_percent(today.hit_ratio)} of the "
        f"prompt blocks; {fixed_percent(curve.ceiling)} were seen before{most}."
    ]
    gain = curve.gain(today.capacity_blocks, plan.step_blocks)
    if gain is not None:
        said.append(f"Another {_step(plan)} would add {100 * gain:.2f} percentage points.")
    if today.knee is not None:
        side = "below" if today.capacity_blocks < today.knee else "beyond"
        said.append(
            f"The knee of the curve is at {_size(plan, today, today.knee)}, "
            f"{fixed_percent(curve.hit_ratio(today.knee))}: today is {side} it. Up to the knee more memory gains more "
            "than on average, beyond it less."
        )
    for need in today.targets:
        if need.blocks is None:
            said.append(f"A hit ratio of {_target(need.target)}: {need.reason}.")
        else:
            said.append(f"A hit ratio of {_target(need.target)} needs {_size(plan, today, need.blocks)}.")
    return said


def capacity_table(plan: Plan, capacities: Sequence[float]) -> Table:
    """The hit ratio at some capacities, blocks, and what the next GiB adds there."""
    today, curve = plan.today, plan.curve
    columns = ["blocks", "GiB", "hit ratio", f"next {_step(plan)}, points"]
    rows = [
        [
            f"{blocks:,.0f}" + (" (today)" if blocks == today.capacity_blocks else ""),
            f"{today.gib(blocks) or 0:,.1f}",
            fixed_percent(curve.hit_ratio(blocks)),
            signed_points(curve.gain(blocks, plan.step_blocks)),
        ]
        for blocks in capacities
    ]
    if plan.subject.block_bytes is None:
        for row in (columns, *rows):
            del row[1]
    return columns, rows


def what_if_table(plan: Plan) -> Table:
    """Today and every what-if: hit ratio, capacities for the targets, what hits save."""
    today = plan.today
    columns = ["what if", "hit ratio", "points", *(f"capacity for {_target(need.target)}" for need in today.targets)]
    columns.append("tokens/h from cache")
    rows = []
    for what_if in (today, *plan.what_ifs):
        change = None if what_if.total is None or today.total is None else what_if.total - today.total
        rows.append(
            [
                "today" if what_if is today else what_if.words,
                fixed_percent(what_if.total),
                "" if what_if is today else signed_points(change, 1),
                *(_need(plan, what_if, need.blocks) for need in what_if.targets),
                large_count(what_if.saved_tokens_per_hour),
            ]
        )
        if today.prefill_seconds_per_token is not None:
            rows[-1].append(_seconds(what_if.saved_prefill_seconds_per_hour))
    if today.prefill_seconds_per_token is not None:
        columns.append("prefill saved per h")
    return columns, rows


def _overview(plans: Sequence[Plan]) -> Table:
    unit = "GiB" if all(plan.subject.block_bytes is not None for plan in plans) else "GiB or 1,000 blocks"
    return ["model", "capacity", "hit ratio", "ceiling", f"next {unit} adds, points", "knee"], [
        [
            plan.subject.name,
            _size(plan, plan.today, plan.today.capacity_blocks),
            fixed_percent(plan.today.hit_ratio),
            fixed_percent(plan.curve.ceiling),
            signed_points(plan.curve.gain(plan.today.capacity_blocks, plan.step_blocks)),
            _size(plan, plan.today, plan.today.knee),
        ]
        for plan in plans
    ]


def _model(plan: Plan) -> dict[str, Any]:
    """What the template shows of one model."""
    today = plan.today
    known = {today.capacity_blocks, *plan.capacities, *(need.blocks for need in today.targets if need.blocks)}
    return {
        "plan": plan,
        "step": _step(plan),
        "cards": _cards(plan),
        "summary": summary(plan),
        "curve_figure": _curve_figure(plan),
        "capacities": capacity_table(plan, sorted(known)),
        "gain_figure": _gain_figure(plan),
        "bars": _bars(plan),
        "second_tier": any(what_if.second_tier for what_if in plan.what_ifs),
        "what_ifs": what_if_table(plan),
    }


def _cards(plan: Plan) -> list[tuple[str, str]]:
    today, observed = plan.today, plan.subject.observed
    known = plan.subject.block_bytes is not None
    cards = [
        (fixed_percent(today.hit_ratio), "hit ratio, estimated"),
        (fixed_percent(observed), "hit ratio, observed") if observed is not None else None,
        (fixed_percent(plan.subject.external), "served by a second tier") if plan.subject.external else None,
        (fixed_percent(plan.curve.ceiling), "ceiling: seen before"),
        (
            _size(plan, today, today.capacity_blocks),
            f"capacity, {today.capacity_blocks:,.0f} blocks" if known else "capacity",
        ),
        (_size(plan, today, today.knee), "knee of the curve"),
        (large_count(today.saved_tokens_per_hour), "prompt tokens per hour from cache"),
        (_seconds(today.saved_prefill_seconds_per_hour), "prefill time saved per hour")
        if today.prefill_seconds_per_token is not None
        else None,
    ]
    return [card for card in cards if card is not None]


def _curve_figure(plan: Plan) -> Markup:
    today, curve = plan.today, plan.curve
    unit, label = _unit(plan)
    sizes, ratios = curve.points(today.capacity_blocks)
    here = f"today {fixed_percent(today.hit_ratio)}"
    marks = [svg.Mark(today.capacity_blocks * unit, today.hit_ratio or 0.0, here, svg.ORANGE)]
    for need in today.targets:
        if need.blocks is not None:
            words = f"{_target(need.target)}: {_size(plan, today, need.blocks)}"
            marks.append(svg.Mark(need.blocks * unit, need.target, words, svg.GREEN))
    if today.knee is not None:
        at = curve.hit_ratio(today.knee) or 0.0
        marks.append(svg.Mark(today.knee * unit, at, f"knee: {_size(plan, today, today.knee)}", svg.SOFT))
    return svg.line_figure(
        list(zip((sizes * unit).tolist(), ratios.tolist(), strict=True)),
        x_label=f"capacity, {label} (logarithmic)",
        y_label="hit ratio",
        marks=marks,
        levels=[] if curve.ceiling is None else [(curve.ceiling, f"ceiling {fixed_percent(curve.ceiling)}")],
    )


def _gain_figure(plan: Plan) -> Markup | None:
    curve, today, step = plan.curve, plan.today, plan.step_blocks
    unit, label = _unit(plan)
    sizes, _ = curve.points(today.capacity_blocks)
    gains = [(blocks, curve.gain(blocks, step)) for blocks in sizes.tolist()]
    points = [(blocks * unit, 100 * gain) for blocks, gain in gains if gain is not None]
    if len(points) < 2:
        return None
    marks = []
    for blocks, words, color in ((today.capacity_blocks, "today", svg.ORANGE), (today.knee, "knee", svg.SOFT)):
        gain = None if blocks is None else curve.gain(blocks, step)
        if blocks is not None and gain is not None:
            marks.append(svg.Mark(blocks * unit, 100 * gain, f"{words}: {100 * gain:.2f}", color))
    return svg.line_figure(
        points,
        x_label=f"capacity, {label} (logarithmic)",
        y_label=f"points per {_step(plan)}",
        marks=marks,
        percent=False,
    )


def _bars(plan: Plan) -> Markup:
    bars = [("today", plan.today.hit_ratio or 0.0, 0.0)]
    for what_if in plan.what_ifs:
        if what_if.hit_ratio is not None:
            name = "all together" if what_if.words.startswith("together") else what_if.words
            bars.append((name, what_if.hit_ratio, what_if.second_tier or 0.0))
    label = "hit ratio at today's capacity per replica"
    return svg.bar_figure(bars, reference=plan.today.hit_ratio or 0.0, x_label=label)


def _size(plan: Plan, what_if: WhatIf, blocks: float | None) -> str:
    """A capacity as memory where that is known, in blocks otherwise."""
    if blocks is None:
        return NONE
    if what_if.block_bytes is not None:
        return memory(blocks * what_if.block_bytes)
    other = what_if.demand.block_size != plan.today.demand.block_size
    return f"{blocks:,.0f} blocks" + (f" of {what_if.demand.block_size}" if other else "")


def _need(plan: Plan, what_if: WhatIf, blocks: float | None) -> str:
    return _size(plan, what_if, blocks) + (" each" if what_if.replicas > 1 and blocks is not None else "")


def _target(ratio: float) -> str:
    """As many digits as it was given with."""
    return f"{100 * ratio:g} %"


def _seconds(seconds: float | None) -> str:
    return NONE if seconds is None else duration(seconds)


def _step(plan: Plan) -> str:
    return "GiB" if plan.subject.block_bytes is not None else "1,000 blocks"


def _unit(plan: Plan) -> tuple[float, str]:
    """What to multiply blocks by, and the unit's name."""
    return (1.0, "blocks") if plan.subject.block_bytes is None else (plan.subject.block_bytes / GIB, "GiB")

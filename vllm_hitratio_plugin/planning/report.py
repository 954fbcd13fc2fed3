"""The plan as one HTML file: figures inline, no script, no network, made to be printed and handed on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from vllm_hitratio_plugin.planning.curve import GIB
from vllm_hitratio_plugin.planning.figure import GREEN, ORANGE, SOFT, Mark, bar_figure, line_figure
from vllm_hitratio_plugin.planning.plan import Outcome, Plan

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; color: #1c2733; background: #fff;
  max-width: 60rem; margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .3rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; } p { margin: .4rem 0; } .soft { color: #5b6875; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .8rem; margin: 1rem 0; }
.card { border: 1px solid #d9e0e6; border-radius: 8px; padding: .7rem .9rem; }
.card b { display: block; font-size: 1.3rem; line-height: 1.3; white-space: nowrap; }
.card span { color: #5b6875; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; font-variant-numeric: tabular-nums;
  font-size: .92rem; }
th, td { padding: .35rem .5rem; border-bottom: 1px solid #e3e8ed; text-align: right; vertical-align: top; }
th { color: #5b6875; font-weight: 600; } th:first-child, td:first-child { text-align: left; }
td:not(:first-child) { white-space: nowrap; }
figure { margin: .6rem 0 1rem; } figcaption { color: #5b6875; font-size: .87rem; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, "Segoe UI", Roboto, Arial, sans-serif;
  paint-order: stroke; stroke: #fff; stroke-width: 4px; }
footer { margin-top: 2.5rem; border-top: 1px solid #e3e8ed; padding-top: .8rem; font-size: .87rem; color: #5b6875; }
@page { margin: 14mm; }
@media print { body { margin: 0; max-width: none; padding: 0; font-size: 11pt; }
  figure, tr, .card { break-inside: avoid; } h2, h3 { break-after: avoid; } section + section { break-before: page; } }
"""

_METHOD = (
    "Hit ratio means reused blocks over all prompt blocks, summed over requests. It is estimated from idle gaps, sizes "
    "and rates of the traffic (the mean-field approximation of an LRU cache, in flow form); a what-if changes gaps, "
    "sizes or rates and estimates anew. On the ShareGPT workload every kind of what-if was within 0.01 of a replay "
    "under that change; docs/what-ifs.md has the figures. GiB are of KV cache on one worker."
)


def report(plans: Sequence[Plan], made: str) -> str:
    """The page; ``made`` says when and from what, in words."""
    title = "KV-cache plan" if len(plans) != 1 else f"KV-cache plan: {plans[0].subject.name}"
    body = [f"<h1>{escape(title)}</h1>", f'<p class="soft">{escape(made)}</p>']
    if len(plans) > 1:
        body.append(_overview(plans))
    body += [_section(one, heading=len(plans) > 1) for one in plans]
    body.append(f"<footer><p>{escape(_METHOD)}</p></footer>")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body>{''.join(body)}</body></html>\n"
    )


def size(plan: Plan, outcome: Outcome, blocks: float | None) -> str:
    """A capacity in GiB where that is known, in blocks otherwise; a dash for none."""
    if blocks is None:
        return "–"
    gib = outcome.gib(blocks)
    if gib is not None:
        return f"{gib:,.1f} GiB"
    other = f" of {outcome.demand.block_size}" if outcome.demand.block_size != plan.today.demand.block_size else ""
    return f"{blocks:,.0f} blocks{other}"


def summary(plan: Plan) -> list[str]:
    """What the plan comes to, a sentence each."""
    today, curve = plan.today, plan.curve
    left_out = today.demand.left_out
    most = (
        f"in the prompts that got blocks; without blocks, and left out: {left_out:,}"
        if left_out
        else "and no capacity serves more"
    )
    said = [
        f"Today's cache of {size(plan, today, today.capacity_blocks)} serves {percent(today.hit_ratio)} of the prompt "
        f"blocks; {percent(curve.ceiling)} were seen before{' ' if left_out else ', '}{most}."
    ]
    gain = curve.gain(today.capacity_blocks, plan.step_blocks)
    if gain is not None:
        unit = "GiB" if plan.subject.block_bytes is not None else "1,000 blocks"
        said.append(f"Another {unit} would add {100 * gain:.2f} percentage points.")
    if today.knee is not None:
        side = "below" if today.capacity_blocks < today.knee else "beyond"
        said.append(
            f"The knee of the curve is at {size(plan, today, today.knee)}, {percent(curve.hit_ratio(today.knee))}: "
            f"today is {side} it. Up to the knee more memory pays better than on average, beyond it worse."
        )
    for need in today.needs:
        if need.blocks is None:
            said.append(f"A hit ratio of {whole(need.target)}: {need.reason}.")
        else:
            said.append(f"A hit ratio of {whole(need.target)} needs {size(plan, today, need.blocks)}.")
    return said


def percent(ratio: float | None) -> str:
    """One digit; a dash for what is not known."""
    return "–" if ratio is None else f"{100 * ratio:.1f} %"


def whole(ratio: float) -> str:
    """As many digits as it has, for what was asked for."""
    return f"{100 * ratio:g} %"


def _overview(plans: Sequence[Plan]) -> str:
    rows = []
    for one in plans:
        gain = one.curve.gain(one.today.capacity_blocks, one.step_blocks)
        rows.append(
            [
                one.subject.name,
                size(one, one.today, one.today.capacity_blocks),
                percent(one.today.hit_ratio),
                percent(one.curve.ceiling),
                "–" if gain is None else f"{100 * gain:+.2f} points",
                size(one, one.today, one.today.knee),
            ]
        )
    unit = "GiB" if all(one.subject.block_bytes is not None for one in plans) else "GiB or 1,000 blocks"
    return "<h2>All models</h2>" + _table(
        ["model", "capacity", "hit ratio", "ceiling", f"next {unit} adds", "knee"], rows
    )


def _section(plan: Plan, heading: bool) -> str:
    today, subject = plan.today, plan.subject
    parts = [f"<h2>{escape(subject.name)}</h2>" if heading else ""]
    parts.append(f'<p class="soft">Traffic: {escape(subject.source)}. Blocks of {today.demand.block_size} tokens.</p>')
    parts.append(_cards(plan))
    parts += [f"<p>{escape(sentence)}</p>" for sentence in summary(plan)]
    parts.append("<h3>Hit ratio by capacity</h3>" + _curve_figure(plan))
    parts.append(_capacity_table(plan))
    parts.append("<h3>What an additional GiB gains</h3>" if subject.block_bytes is not None else "<h3>Gain</h3>")
    parts.append(_gain_figure(plan))
    if plan.outcomes:
        parts.append("<h3>What if</h3>" + _bars(plan) + _what_if_table(plan))
    parts += [f'<p class="soft">{escape(note)}</p>' for note in subject.notes]
    return f"<section>{''.join(parts)}</section>"


def _cards(plan: Plan) -> str:
    today = plan.today
    cards = [
        (percent(today.hit_ratio), "hit ratio, estimated"),
        (percent(plan.subject.observed), "hit ratio, observed") if plan.subject.observed is not None else None,
        (percent(plan.curve.ceiling), "ceiling: seen before"),
        (
            size(plan, today, today.capacity_blocks),
            "capacity" if plan.subject.block_bytes is None else f"capacity, {today.capacity_blocks:,.0f} blocks",
        ),
        (size(plan, today, today.knee), "knee of the curve"),
        (_millions(today.saved_tokens_per_hour), "prompt tokens an hour from cache"),
        (_hours(plan.prefill_seconds_saved_per_hour(today)), "prefill time saved an hour")
        if plan.prefill_seconds_per_token is not None
        else None,
    ]
    shown = "".join(
        f'<div class="card"><b>{escape(card[0])}</b><span>{escape(card[1])}</span></div>' for card in cards if card
    )
    return f'<div class="cards">{shown}</div>'


def _curve_figure(plan: Plan) -> str:
    today, curve = plan.today, plan.curve
    unit, label = _unit(plan)
    sizes, ratios = curve.points(today.capacity_blocks)
    marks = [Mark(today.capacity_blocks * unit, today.hit_ratio or 0.0, f"today {percent(today.hit_ratio)}", ORANGE)]
    for need in today.needs:
        if need.blocks is not None:
            words = f"{whole(need.target)}: {size(plan, today, need.blocks)}"
            marks.append(Mark(need.blocks * unit, need.target, words, GREEN))
    if today.knee is not None:
        at = curve.hit_ratio(today.knee) or 0.0
        marks.append(Mark(today.knee * unit, at, f"knee: {size(plan, today, today.knee)}", SOFT))
    level = None if curve.ceiling is None else (curve.ceiling, f"ceiling {percent(curve.ceiling)}")
    drawn = line_figure(
        [(float(blocks) * unit, float(ratio)) for blocks, ratio in zip(sizes, ratios, strict=True)],
        x_label=f"capacity, {label} (logarithmic)",
        y_label="hit ratio",
        marks=marks,
        level=level,
    )
    return f"<figure>{drawn}<figcaption>Estimated on the measured traffic, at every capacity.</figcaption></figure>"


def _gain_figure(plan: Plan) -> str:
    curve, today, step = plan.curve, plan.today, plan.step_blocks
    unit, label = _unit(plan)
    sizes, _ = curve.points(today.capacity_blocks)
    points = [
        (float(blocks) * unit, 100 * gain) for blocks in sizes if (gain := curve.gain(float(blocks), step)) is not None
    ]
    if len(points) < 2:
        return ""
    marks = []
    for blocks, words, color in ((today.capacity_blocks, "today", ORANGE), (today.knee, "knee", SOFT)):
        gain = None if blocks is None else curve.gain(blocks, step)
        if blocks is not None and gain is not None:
            marks.append(Mark(blocks * unit, 100 * gain, f"{words}: {100 * gain:.2f}", color))
    per = "GiB" if plan.subject.block_bytes is not None else "1,000 blocks"
    drawn = line_figure(
        points,
        x_label=f"capacity, {label} (logarithmic)",
        y_label=f"points per {per}",
        marks=marks,
        percent=False,
    )
    words = f"Percentage points of hit ratio that the next {per} adds to a cache of that size."
    return f"<figure>{drawn}<figcaption>{words}</figcaption></figure>"


def _bars(plan: Plan) -> str:
    bars = [("today", plan.today.hit_ratio or 0.0, 0.0)]
    for outcome in plan.outcomes:
        if outcome.hit_ratio is not None:
            name = "all together" if outcome.words.startswith("together") else outcome.words
            bars.append((name, outcome.hit_ratio, outcome.second_tier or 0.0))
    drawn = bar_figure(bars, reference=plan.today.hit_ratio or 0.0, x_label="hit ratio at today's capacity per replica")
    return f"<figure>{drawn}<figcaption>Light blue: served by the second tier.</figcaption></figure>"


def _capacity_table(plan: Plan) -> str:
    curve, today = plan.curve, plan.today
    asked = sorted({today.capacity_blocks, *plan.capacities, *(n.blocks for n in today.needs if n.blocks is not None)})
    per = "GiB" if plan.subject.block_bytes is not None else "1,000 blocks"
    rows = []
    for blocks in asked:
        gain = curve.gain(blocks, plan.step_blocks)
        rows.append(
            [
                f"{blocks:,.0f}" + (" (today)" if blocks == today.capacity_blocks else ""),
                "–" if today.gib(blocks) is None else f"{today.gib(blocks):,.1f}",
                percent(curve.hit_ratio(blocks)),
                "–" if gain is None else f"{100 * gain:+.2f} points",
            ]
        )
    columns = ["blocks", "GiB", "hit ratio", f"next {per}"]
    if plan.subject.block_bytes is None:
        columns.pop(1)
        rows = [[row[0], *row[2:]] for row in rows]
    return _table(columns, rows)


def _what_if_table(plan: Plan) -> str:
    today = plan.today
    columns = ["what if", "hit ratio", "change, points"]
    columns += [f"capacity for {whole(need.target)}" for need in today.needs]
    columns += ["tokens an hour from cache"]
    if plan.prefill_seconds_per_token is not None:
        columns.append("prefill saved an hour")
    rows = []
    for outcome in (today, *plan.outcomes):
        ratio = outcome.total
        change = None if ratio is None or today.total is None else 100 * (ratio - today.total)
        row = [
            "today" if outcome is today else outcome.words,
            percent(ratio),
            "" if outcome is today else "–" if change is None else f"{change:+.1f}",
        ]
        row += [
            size(plan, outcome, need.blocks) + (" each" if outcome.replicas > 1 and need.blocks is not None else "")
            for need in outcome.needs
        ]
        row.append(_millions(outcome.saved_tokens_per_hour))
        if plan.prefill_seconds_per_token is not None:
            row.append(_hours(plan.prefill_seconds_saved_per_hour(outcome)))
        rows.append(row)
    return _table(columns, rows)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _unit(plan: Plan) -> tuple[float, str]:
    """What to multiply blocks by, and the unit's name."""
    return (1.0, "blocks") if plan.subject.block_bytes is None else (plan.subject.block_bytes / GIB, "GiB")


def _millions(tokens: float | None) -> str:
    if tokens is None:
        return "–"
    return f"{tokens / 1e6:,.1f} M" if tokens >= 1e6 else f"{tokens / 1e3:,.0f} k"


def _hours(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:,.1f} min"

"""One engine on one small page of HTML: no network, light and dark, readable on a phone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from html import escape

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME, Estimate, Snapshot
from vllm_hitratio_plugin.wording import capacity, count, duration, percent

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c2330; --quiet: #5d6675; --line: #d5dae2; --card: #f6f7f9;
  --hit: #2f6fde; --capacity: #d9780f; --unexplained: #c92a2a; --cold: #6b8299; --partial: #b9c1cc;
  --critical: #c92a2a; --warning: #a85a00; --info: #2f6fde; --ok: #217a3c; }
@media (prefers-color-scheme: dark) { :root { --back: #14171c; --text: #e4e8ee; --quiet: #97a1b0; --line: #333a45;
  --card: #1c2128; --hit: #6b9ef5; --capacity: #f0a04b; --unexplained: #ff7b72; --cold: #8299b3; --partial: #4a5361;
  --critical: #ff7b72; --warning: #f0a04b; --info: #6b9ef5; --ok: #5fc27e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.25rem; margin: 0; } h2 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
p { margin: .25rem 0; } .quiet { color: var(--quiet); font-size: .875rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .5rem; margin: 1rem 0; }
.figures div { background: var(--card); border-radius: .5rem; padding: .5rem .75rem; }
.figures b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
article { background: var(--card); border-left: .3rem solid var(--tone); border-radius: .25rem; padding: .6rem .9rem;
  margin: .6rem 0; }
article h3 { font-size: 1rem; margin: .1rem 0 .3rem; } article .tag { color: var(--tone); font-weight: 700;
  font-size: .8rem; text-transform: uppercase; letter-spacing: .04em; }
article ul { margin: .3rem 0; padding-left: 1.2rem; } summary { cursor: pointer; color: var(--quiet); }
h4 { margin: .6rem 0 0; font-size: .875rem; } code { font-size: .85em; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--quiet); font-size: 12px; }
@media (max-width: 32rem) { svg text { font-size: 19px; } }
.bar { display: flex; height: 1.5rem; border-radius: .25rem; overflow: hidden; background: var(--line); }
.bar span { min-width: 2px; } .legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .5rem 0; padding: 0;
  list-style: none; font-size: .9rem; } .legend i { display: inline-block; width: .8rem; height: .8rem;
  border-radius: .15rem; margin-right: .4rem; vertical-align: -.05rem; }
"""

_FATES = {
    "hit": "served from the cache",
    "capacity": "cached once, evicted: more memory",
    "unexplained": "should still be cached: reset, or the engine",
    "compulsory": "never seen before",
    "partial": "part of a block: block size",
}


def render(snapshot: Snapshot, findings: Sequence[Finding]) -> str:
    """The page; every text of the engine's is escaped."""
    name = escape(f"{snapshot.model_name}, engine {snapshot.engine}")
    taken = datetime.fromtimestamp(snapshot.wall_time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    traffic = Period.of(snapshot)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width, initial-scale=1"><meta http-equiv=refresh content=30>',
        f"<title>Hit ratio: {name}</title><style>{_STYLE}</style>",
        f"<header><h1>{name}</h1><p class=quiet>{escape(_subtitle(snapshot))}; {taken}</p></header>",
        _figures(snapshot),
        "<section><h2>Findings</h2>",
        *map(_finding, findings),
        "</section>" if findings else "<p>None.</p></section>",
        _fates(traffic),
        _curve(snapshot.estimate) if snapshot.estimate is not None else "",
        '<footer class=quiet><p>The same as <a href="/hitratio.json">JSON</a>; everything as '
        f'<a href="/metrics">Prometheus metrics</a>. hitratio {escape(snapshot.version)}, vLLM '
        f"{escape(snapshot.vllm_version)}.</p></footer></html>",
    ]
    return "\n".join(part for part in parts if part)


def _subtitle(snapshot: Snapshot) -> str:
    words = f"{capacity(snapshot.capacity_blocks, snapshot.block_bytes)} of {snapshot.block_size:,} tokens"
    estimate = snapshot.estimate
    if estimate is not None:
        words += f"; {count(estimate.requests, 'prompt')} in the last {duration(estimate.window_seconds)}"
    return words


def _figures(snapshot: Snapshot) -> str:
    estimate = snapshot.estimate
    if estimate is None:
        return ""
    survival = estimate.characteristic_time
    recommended = estimate.recommended_blocks
    cells = [
        ("Observed", _percent(estimate.observed), "hit ratio"),
        ("Predicted", _percent(estimate.predicted.get(REUSE_TIME)), "for this capacity"),
        ("Paper's estimator", _percent(estimate.predicted.get(MEAN_FIELD)), "mean field"),
        ("At most", _percent(estimate.ceiling), "unlimited memory"),
        ("Survival", "" if survival is None else duration(survival), "of an unused block"),
        (
            "For the target",
            "" if recommended is None else f"{math.ceil(recommended):,}",
            f"blocks reach {_percent(estimate.target)}",
        ),
    ]
    return (
        '<div class="figures">'
        + "".join(
            f"<div><span class=quiet>{name}</span><b>{value}</b><span class=quiet>{remark}</span></div>"
            for name, value, remark in cells
            if value
        )
        + "</div>"
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _finding(finding: Finding) -> str:
    lists = "".join(
        f"<h4>{heading}</h4><ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"
        for heading, sentences in (("Likely causes", finding.causes), ("What to do", finding.actions))
        if sentences
    )
    metrics = ", ".join(f"<code>{escape(metric)}</code>" for metric in finding.metrics)
    evidence = "".join(f"<li>{escape(sentence)}</li>" for sentence in finding.evidence)
    open_ = " open" if finding.severity in ("critical", "warning") else ""
    return (
        f'<article style="--tone: var(--{finding.severity})"><span class=tag>{finding.severity}</span> '
        f"<span class=quiet>{escape(finding.rule)}, confidence {round(100 * finding.confidence)} %</span>"
        f"<h3>{escape(finding.summary)}</h3><ul>{evidence}</ul>"
        + (f"<details{open_}><summary>Causes and what to do</summary>{lists}" if lists else "")
        + (f"<p class=quiet>Metrics: {metrics}</p></details>" if lists and metrics else "</details>" if lists else "")
        + "</article>"
    )


def _fates(traffic: Period) -> str:
    total = traffic.prompt_blocks
    if not total:
        return ""
    shares = {fate: traffic.share(fate) for fate in _FATES}
    bar = "".join(
        f'<span style="width: {100 * share:.3f}%; background: var(--{fate})" title="{fate} {percent(share)}"></span>'
        for fate, share in shares.items()
        if share
    )
    legend = "".join(
        f'<li><i style="background: var(--{fate})"></i>{fate} {percent(share)} <span class=quiet>{_FATES[fate]}</span>'
        for fate, share in shares.items()
    )
    return (
        f"<section><h2>What became of {count(total, 'prompt block')} {traffic.window}</h2>"
        f'<div class=bar role=img aria-label="Fates of prompt blocks">{bar}</div>'
        f"<ul class=legend>{legend}</ul></section>"
    )


_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 24, 12, 46


def _curve(estimate: Estimate) -> str:
    """Hit ratio by capacity, as inline SVG: logarithmic blocks, the ceiling, N, the target."""
    if len(estimate.curve) < 2 or estimate.ceiling is None:
        return ""
    low, high = math.log(min(estimate.curve)), math.log(max(estimate.curve))
    top = max(0.1, min(1.0, math.ceil(10 * max(estimate.ceiling, estimate.target or 0.0) + 0.2) / 10))

    def x(blocks: float) -> float:
        return _LEFT + (math.log(blocks) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(ratio: float) -> float:
        return _HEIGHT - _BOTTOM - min(ratio / top, 1.0) * (_HEIGHT - _TOP - _BOTTOM)

    def line(curve: Mapping[int, float]) -> str:
        return " ".join(f"{x(size):.1f},{y(ratio):.1f}" for size, ratio in sorted(curve.items()))

    parts = []
    for tick in (0.0, top / 2, top):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="var(--line)"/>'
            f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{100 * tick:.0f} %</text>'
        )
    sizes = sorted(estimate.curve)
    for size in sizes[:: max(len(sizes) // 4, 1)]:
        parts.append(f'<text x="{x(size):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{size:,}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 5}" text-anchor="middle">blocks</text>')
    parts.append(_level(y(estimate.ceiling), "at most", "var(--quiet)"))
    if estimate.target is not None:
        parts.append(_level(y(estimate.target), "target", "var(--ok)"))
    floor = _HEIGHT - _BOTTOM
    now = x(min(max(estimate.capacity_blocks, sizes[0]), sizes[-1]))
    parts.append(
        f'<line x1="{now:.1f}" x2="{now:.1f}" y1="{_TOP}" y2="{floor}" stroke="var(--quiet)" '
        f'stroke-dasharray="2 3"/><text x="{now + 5:.1f}" y="{floor - 6}">now {estimate.capacity_blocks:,}</text>'
    )
    parts.append(f'<polyline points="{line(estimate.curve)}" fill="none" stroke="var(--hit)" stroke-width="2.5"/>')
    parts += [
        f'<circle cx="{x(size):.1f}" cy="{y(ratio):.1f}" r="3.5" fill="none" stroke="var(--capacity)"/>'
        for size, ratio in sorted(estimate.shadow_curve.items())
    ]
    if estimate.observed is not None:
        parts.append(f'<circle cx="{now:.1f}" cy="{y(estimate.observed):.1f}" r="5" fill="var(--text)"/>')
    return (
        "<section><h2>Hit ratio by capacity</h2>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role=img aria-label="Hit ratio by capacity">{"".join(parts)}</svg>'
        '<ul class=legend><li><i style="background: var(--hit)"></i>predicted<li><i style="background: transparent; '
        'border: 2px solid var(--capacity); border-radius: 50%"></i>exact LRU on the same prompts'
        '<li><i style="background: var(--text); border-radius: 50%"></i>observed</ul></section>'
    )


def _level(height: float, name: str, color: str) -> str:
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="{color}" '
        f'stroke-dasharray="6 4"/><text x="{_LEFT + 4}" y="{height + 14:.1f}">{name}</text>'
    )

"""The status page of one engine: small, no network, light and dark, readable on a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import jinja2
from markupsafe import Markup

from vllm_hitratio_plugin import svg
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME, Estimate, Snapshot
from vllm_hitratio_plugin.wording import capacity, count, duration, fixed_percent, percent

_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

#: What an outcome of a prompt block means for its reader, in the order of the bar.
_MEANINGS = {
    "hit": "served from the cache, or loaded by a KV connector",
    "capacity": "was cached, but evicted: more memory helps",
    "in_flight": "another request was still computing it",
    "unexplained": "should still be cached: a reset, or the engine",
    "compulsory": "never seen before",
    "partial": "in a block that is not full: a smaller block size helps",
}


@dataclass(frozen=True)
class _Outcome:
    """A part of the bar."""

    name: str
    share: float
    percent: str
    meaning: str


def render(snapshot: Snapshot, findings: Sequence[Finding]) -> str:
    """The page; every text from the engine is escaped."""
    period = Period.of(snapshot)
    estimate = snapshot.estimate
    return _PAGES.get_template("status.html.j2").render(
        name=f"{snapshot.model_name}, engine {snapshot.engine}",
        subtitle=_subtitle(snapshot),
        taken=datetime.fromtimestamp(snapshot.wall_time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        svg_style=Markup(svg.STYLE),
        cards=[] if estimate is None else _cards(estimate, period, snapshot.modelled),
        findings=findings,
        outcomes=_outcomes(period),
        outcomes_title=f"Outcomes of {count(period.prompt_blocks, 'prompt block')} {period.window}",
        curve=_curve(estimate) if estimate is not None and snapshot.modelled else None,
        version=snapshot.version,
        vllm_version=snapshot.vllm_version,
    )


def _subtitle(snapshot: Snapshot) -> str:
    words = f"{capacity(snapshot.capacity_blocks, snapshot.block_bytes)} of {snapshot.block_size:,} tokens"
    estimate = snapshot.estimate
    if estimate is not None:
        words += f"; {count(estimate.requests, 'request')} in the last {duration(estimate.window_seconds)}"
    return words


def _cards(estimate: Estimate, period: Period, modelled: bool) -> list[tuple[str, str, str]]:
    """(title, value, remark) of the figures that were measured; predictions only where the model applies."""
    time, recommended = estimate.characteristic_time, estimate.recommended_blocks
    observed = ("Observed", _ratio(estimate.observed), "hit ratio")
    external = ("Second tier", _ratio(period.share("hit", "external") or None), "served beyond that")
    predicted = [
        ("Predicted", _ratio(estimate.predicted[REUSE_TIME]), "for this capacity"),
        ("Mean field", _ratio(estimate.predicted[MEAN_FIELD]), "the paper's estimator"),
        ("Ceiling", _ratio(estimate.ceiling), "with an infinite cache"),
        ("Evicted after", "" if time is None else duration(time), "without reuse"),
        (
            "For the target",
            "" if recommended is None else f"{math.ceil(recommended):,}",
            "" if estimate.target is None else f"blocks reach {percent(estimate.target)}",
        ),
    ]
    return [card for card in (observed, external, *(predicted if modelled else ())) if card[1]]


def _ratio(value: float | None) -> str:
    return fixed_percent(value, none="")


def _outcomes(period: Period) -> list[_Outcome]:
    if not period.prompt_blocks:
        return []
    shares = {name: period.share(name) for name in _MEANINGS}
    return [_Outcome(name, share, percent(share), _MEANINGS[name]) for name, share in shares.items()]


def _curve(estimate: Estimate) -> Markup | None:
    """Hit ratio by capacity, with the ceiling, the target and where the engine is."""
    if len(estimate.curve) < 2 or estimate.ceiling is None:
        return None
    levels = [(estimate.ceiling, "ceiling")]
    if estimate.target is not None:
        levels.append((estimate.target, "target"))
    now = estimate.predicted[REUSE_TIME] if estimate.observed is None else estimate.observed
    mark = svg.Mark(estimate.capacity_blocks, now or 0.0, f"now {estimate.capacity_blocks:,}", svg.INK)
    return svg.line_figure(
        sorted(estimate.curve.items()),
        x_label="blocks",
        title="Hit ratio by capacity",
        marks=[mark],
        levels=levels,
        dots=sorted(estimate.shadow_curve.items()),
        width=640,
        height=270,
    )

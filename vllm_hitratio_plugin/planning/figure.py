"""Figures as inline SVG: lines over a logarithmic axis, and bars. No dependency, no script, prints well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 24.0, 16.0, 46.0
INK, SOFT, GRID, BLUE, ORANGE, GREEN = "#1c2733", "#5b6875", "#e3e8ed", "#1f6feb", "#d9730d", "#1a7f4b"


@dataclass(frozen=True)
class Mark:
    """A point on a line, named."""

    x: float
    y: float
    label: str
    color: str = BLUE


def line_figure(
    points: Sequence[tuple[float, float]],
    *,
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
    level: tuple[float, str] | None = None,
    percent: bool = True,
) -> str:
    """One curve, x logarithmic, y from 0; ``level`` is a dashed horizontal line with its name."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = math.log10(min(xs)), math.log10(max(xs))
    top = _nice(max([*ys, *(mark.y for mark in marks), level[0] if level else 0.0]) * 1.06 or 1.0)
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def x_of(value: float) -> float:
        return _LEFT + (math.log10(value) - low) / max(high - low, 1e-9) * (right - _LEFT)

    def y_of(value: float) -> float:
        return bottom - value / top * (bottom - _TOP)

    parts = _y_axis(top, y_of, y_label, percent)
    for tick in _log_ticks(10**low, 10**high):
        parts.append(_line(x_of(tick), _TOP, x_of(tick), bottom, GRID))
        parts.append(_text(x_of(tick), bottom + 18, _number(tick), "middle"))
    parts.append(_text((_LEFT + right) / 2, HEIGHT - 8, x_label, "middle", SOFT))
    if level is not None:
        parts.append(_line(_LEFT, y_of(level[0]), right, y_of(level[0]), SOFT, 'stroke-dasharray="5 4"'))
        parts.append(_text(_LEFT + 8, y_of(level[0]) - 6, level[1], "start", SOFT))
    path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{BLUE}" stroke-width="2.5"/>')
    shown = sorted((mark for mark in marks if min(xs) <= mark.x <= max(xs)), key=lambda mark: mark.x)
    rising = ys[-1] >= ys[0]
    taken: list[tuple[float, float]] = []
    for mark in shown:
        x, y = x_of(mark.x), y_of(mark.y)
        # Above a rising curve there is room to the left, above a falling one to the right.
        left = x > _LEFT + (0.3 if rising else 0.75) * (right - _LEFT)
        place = y - 8
        while any(abs(place - other) < 15 and abs(x - across) < 220 for across, other in taken):
            place -= 5
        taken.append((x, place))
        parts.append(_line(x, y, x, bottom, mark.color, 'stroke-dasharray="2 3"'))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{mark.color}" stroke="#fff" stroke-width="1.5"/>')
        parts.append(_text(x - 10 if left else x + 10, place, mark.label, "end" if left else "start", mark.color))
    return _svg(parts, HEIGHT, f"{y_label} over {x_label}")


def bar_figure(bars: Sequence[tuple[str, float, float]], *, reference: float, x_label: str) -> str:
    """Horizontal bars (name, first part, second part stacked on it), and a vertical line at ``reference``."""
    step, left = 30.0, 300.0
    height = _TOP + step * len(bars) + _BOTTOM
    top = _nice(max([first + second for _, first, second in bars] + [reference]) * 1.12 or 1.0)
    right, bottom = WIDTH - 70, height - _BOTTOM

    def x_of(value: float) -> float:
        return left + value / top * (right - left)

    parts = []
    for tick in _ticks(top):
        parts.append(_line(x_of(tick), _TOP, x_of(tick), bottom, GRID))
        parts.append(_text(x_of(tick), bottom + 18, f"{100 * tick:.4g} %", "middle"))
    parts.append(_line(x_of(reference), _TOP, x_of(reference), bottom, ORANGE, 'stroke-dasharray="5 4"'))
    for index, (name, first, second) in enumerate(bars):
        y = _TOP + step * index + 5
        color = SOFT if index == 0 else BLUE
        parts.append(_rect(left, y, x_of(first) - left, step - 11, color))
        parts.append(_rect(x_of(first), y, x_of(first + second) - x_of(first), step - 11, "#8ab4f8"))
        parts.append(_text(left - 8, y + 14, name if len(name) < 46 else name[:44] + "…", "end"))
        parts.append(_text(x_of(first + second) + 7, y + 14, f"{100 * (first + second):.1f} %", "start"))
    parts.append(_text((left + right) / 2, height - 8, x_label, "middle", SOFT))
    return _svg(parts, height, x_label)


def _svg(parts: Sequence[str], height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _y_axis(top: float, y_of: object, label: str, percent: bool) -> list[str]:
    assert callable(y_of)
    parts = []
    for tick in _ticks(top):
        parts.append(_line(_LEFT, y_of(tick), WIDTH - _RIGHT, y_of(tick), GRID))
        said = f"{100 * tick:.4g} %" if percent else f"{tick:.4g}"
        parts.append(_text(_LEFT - 8, y_of(tick) + 4, said, "end"))
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    turned = f'transform="rotate(-90 14 {middle:g})"'
    parts.append(_text(14, middle, label, "middle", SOFT, turned))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, color: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" {more}/>'


def _rect(x: float, y: float, width: float, height: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:g}" fill="{color}"/>'


def _text(x: float, y: float, words: str, anchor: str, color: str = INK, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" {more}>{escape(words)}</text>'


def _nice(value: float) -> float:
    """The next 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def _ticks(top: float) -> list[float]:
    parts = next((parts for parts in (5, 4, 6, 3) if _round(top / parts)), 5)
    return [top * index / parts for index in range(parts + 1)]


def _round(step: float) -> bool:
    digits = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    return any(abs(digits - good) < 1e-6 for good in (1, 2, 2.5, 3, 4, 5, 6, 7.5))


def _log_ticks(low: float, high: float) -> list[float]:
    steps = (1, 2, 5) if high / low < 3000 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"

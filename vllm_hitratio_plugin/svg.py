"""Figures as inline SVG: lines over a logarithmic axis, and bars. No dependency, no script, prints well.

The colors are CSS variables with a light default, so a page sets them once for light and dark. All results are
``Markup``: a template with autoescape takes them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

#: Colors, by the CSS variable that a page may set.
INK = "var(--ink, #1c2733)"
SOFT = "var(--soft, #5b6875)"
GRID = "var(--grid, #e3e8ed)"
BACK = "var(--back, #fff)"
BLUE = "var(--blue, #1f6feb)"
LIGHT_BLUE = "var(--light-blue, #8ab4f8)"
ORANGE = "var(--orange, #d9730d)"
GREEN = "var(--green, #1a7f4b)"

#: For the page's style sheet: texts stay readable where they cross a line.
STYLE = f"""\
svg.figure {{ width: 100%; height: auto; display: block; }}
svg.figure text {{ font: 12px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; paint-order: stroke;
  stroke: {BACK}; stroke-width: 4px; }}
"""

_DASHES = "5 4"
_DOTS = "2 3"


@dataclass(frozen=True)
class Mark:
    """A named point on a line."""

    x: float
    y: float
    label: str
    color: str = BLUE


@dataclass(frozen=True)
class _Frame:
    """The plotting area, in the units of the viewBox."""

    left: float
    right: float
    top: float
    bottom: float

    def scale(self, top: float) -> Callable[[float], float]:
        """Values from 0 to ``top`` → height."""
        return lambda value: self.bottom - value / top * (self.bottom - self.top)

    def log_scale(self, low: float, high: float) -> Callable[[float], float]:
        """Values from ``low`` to ``high`` → position on a logarithmic axis."""
        start, span = math.log10(low), max(math.log10(high) - math.log10(low), 1e-9)
        return lambda value: self.left + (math.log10(value) - start) / span * (self.right - self.left)


def line_figure(
    points: Sequence[tuple[float, float]],
    *,
    x_label: str,
    y_label: str = "",
    title: str = "",
    marks: Sequence[Mark] = (),
    levels: Sequence[tuple[float, str]] = (),
    dots: Sequence[tuple[float, float]] = (),
    percent: bool = True,
    width: float = 760.0,
    height: float = 320.0,
) -> Markup:
    """One curve over a logarithmic x axis; y starts at 0.

    Args:
        points: At least one (x, y), ascending in x, x > 0.
        x_label: Under the axis.
        y_label: Along the axis; without it only the numbers stand there.
        title: For readers who can't see the figure; made of the labels by default.
        marks: Named points with a line down to the axis; those outside the curve's x range are left out.
        levels: Dashed horizontal lines and their names.
        dots: Points of another series, drawn as circles.
        percent: Whether y is a ratio, shown as a percentage up to 100 %.
        width: Of the viewBox, like ``height``: the figure is as wide as its place.
        height: See ``width``.
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    frame = _Frame(66.0, width - 24, 16.0, height - 46)
    most = max([*ys, *(mark.y for mark in marks), *(level for level, _ in levels), *(y for _, y in dots)])
    top = _nice(most * 1.06 if most > 0 else 1.0)
    if percent and most <= 1:
        top = min(top, 1.0)
    x_of, y_of = frame.log_scale(xs[0], xs[-1]), frame.scale(top)

    parts = [_y_axis(frame, top, y_of, percent)]
    if y_label:
        middle = (frame.top + frame.bottom) / 2
        parts.append(_text(14, middle, y_label, "middle", SOFT, {"transform": f"rotate(-90 14 {middle:g})"}))
    for tick in _log_ticks(xs[0], xs[-1]):
        parts.append(_line(x_of(tick), frame.top, x_of(tick), frame.bottom, GRID))
        parts.append(_text(x_of(tick), frame.bottom + 18, _number(tick), "middle", SOFT))
    parts.append(_text((frame.left + frame.right) / 2, height - 8, x_label, "middle", SOFT))
    for level, _ in levels:
        parts.append(_line(frame.left, y_of(level), frame.right, y_of(level), SOFT, _DASHES))
    path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
    parts.append(_element("polyline", points=path, fill="none", stroke=BLUE, stroke_width="2.5"))
    parts += [
        _element("circle", cx=x_of(x), cy=y_of(y), r="3.5", fill="none", stroke=ORANGE, stroke_width="1.5")
        for x, y in dots
        if xs[0] <= x <= xs[-1]
    ]
    parts += _level_names(frame, levels, y_of)
    drawn = [(x_of(x), y_of(y)) for x, y in points]
    shown = sorted((mark for mark in marks if xs[0] <= mark.x <= xs[-1]), key=lambda mark: mark.x)
    parts += _marks([(mark, x_of(mark.x), y_of(mark.y)) for mark in shown], frame, drawn)
    return _svg(parts, width, height, title or f"{y_label} over {x_label}")


def bar_figure(bars: Sequence[tuple[str, float, float]], *, reference: float, x_label: str) -> Markup:
    """Horizontal bars (name, first part, second part stacked on it), and a vertical line at ``reference``."""
    step, width = 30.0, 760.0
    height = 16 + step * len(bars) + 46
    frame = _Frame(300.0, width - 70, 16.0, height - 46)
    top = _nice(max([first + second for _, first, second in bars] + [reference]) * 1.12 or 1.0)

    def x_of(value: float) -> float:
        return frame.left + value / top * (frame.right - frame.left)

    parts = []
    for tick in _ticks(top):
        parts.append(_line(x_of(tick), frame.top, x_of(tick), frame.bottom, GRID))
        parts.append(_text(x_of(tick), frame.bottom + 18, _percent(tick), "middle"))
    parts.append(_line(x_of(reference), frame.top, x_of(reference), frame.bottom, ORANGE, _DASHES))
    for index, (name, first, second) in enumerate(bars):
        y = frame.top + step * index + 5
        end = x_of(first + second)
        parts.append(_rect(frame.left, y, x_of(first) - frame.left, step - 11, SOFT if index == 0 else BLUE))
        parts.append(_rect(x_of(first), y, end - x_of(first), step - 11, LIGHT_BLUE))
        parts.append(_text(frame.left - 8, y + 14, name if len(name) < 46 else name[:44] + "…", "end"))
        parts.append(_text(end + 7, y + 14, f"{100 * (first + second):.1f} %", "start"))
    parts.append(_text((frame.left + frame.right) / 2, height - 8, x_label, "middle", SOFT))
    return _svg(parts, width, height, x_label)


def _y_axis(frame: _Frame, top: float, y_of: Callable[[float], float], percent: bool) -> Markup:
    parts = []
    for tick in _ticks(top):
        parts.append(_line(frame.left, y_of(tick), frame.right, y_of(tick), GRID))
        parts.append(_text(frame.left - 8, y_of(tick) + 4, _percent(tick) if percent else f"{tick:.4g}", "end", SOFT))
    return Markup("").join(parts)


def _level_names(frame: _Frame, levels: Sequence[tuple[float, str]], y_of: Callable[[float], float]) -> list[Markup]:
    """Above its line each, below it where the name above would meet another line."""
    heights = [y_of(level) for level, _ in levels]
    parts = []
    for height, (_, name) in zip(heights, levels, strict=True):
        crowded = any(0 < height - other < 20 for other in heights) or height - frame.top < 12
        parts.append(_text(frame.left + 8, height + 15 if crowded else height - 6, name, "start", SOFT))
    return parts


def _marks(
    marks: Sequence[tuple[Mark, float, float]], frame: _Frame, curve: Sequence[tuple[float, float]]
) -> list[Markup]:
    """Marks with where they are, from left to right, and their labels where no line is."""
    rising = curve[-1][1] <= curve[0][1]
    parts = []
    taken: list[tuple[float, float]] = []
    for mark, x, y in marks:
        level = _height(curve, x)
        # Above a rising curve there is room to the left, and below it to the right; a falling one is its mirror image.
        below = y > level + 12
        left = x > frame.left + (0.3 if rising and not below else 0.75) * (frame.right - frame.left)
        place = min(y + 4, frame.bottom - 4) if below else y - 8
        while any(abs(place - other) < 15 and abs(x - across) < 220 for across, other in taken):
            place -= 5
        taken.append((x, place))
        parts.append(_line(x, min(y, level), x, frame.bottom, mark.color, _DOTS))
        parts.append(_element("circle", cx=x, cy=y, r="5", fill=mark.color, stroke=BACK, stroke_width="1.5"))
        parts.append(_text(x - 10 if left else x + 10, place, mark.label, "end" if left else "start", mark.color))
    return parts


def _height(curve: Sequence[tuple[float, float]], x: float) -> float:
    """Where the drawn curve is at ``x``, within its range."""
    for (start, low), (end, high) in pairwise(curve):
        if start <= x <= end and end > start:
            return low + (high - low) * (x - start) / (end - start)
    return curve[0][1] if x <= curve[0][0] else curve[-1][1]


def _svg(parts: Sequence[Markup], width: float, height: float, title: str) -> Markup:
    inside = Markup("").join(parts)
    return _element("svg", inside, class_="figure", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=title)


def _line(x1: float, y1: float, x2: float, y2: float, color: str, dashes: str | None = None) -> Markup:
    return _element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=color, stroke_dasharray=dashes)


def _rect(x: float, y: float, width: float, height: float, color: str) -> Markup:
    return _element("rect", x=x, y=y, width=max(width, 0.0), height=height, fill=color)


def _text(
    x: float, y: float, words: str, anchor: str, color: str = INK, more: Mapping[str, str] | None = None
) -> Markup:
    return _element("text", escape(words), x=x, y=y, text_anchor=anchor, fill=color, **(more or {}))


def _element(name: str, inside: Markup | None = None, **attributes: str | float | None) -> Markup:
    """One element; an attribute's underscores are hyphens, None leaves it out, everything is escaped."""
    said = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"), f"{value:.1f}" if isinstance(value, float) else value
        )
        for key, value in attributes.items()
        if value is not None
    )
    return (
        Markup("<{0}{1}/>").format(name, said)
        if inside is None
        else Markup("<{0}{1}>{2}</{0}>").format(name, said, inside)
    )


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
    """Round numbers from low to high, at most about eight; both ends where no two round numbers lie between them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) <= 8:
            break
    return ticks if len(ticks) > 1 else sorted({low, high})


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.4g} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"

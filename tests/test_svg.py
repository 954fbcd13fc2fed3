"""Figures are well-formed, escaped, and inside their frame."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_hitratio_plugin.svg import Mark, bar_figure, line_figure


def numbers(element: ElementTree.Element, *names: str) -> list[float]:
    return [float(element.attrib[name]) for name in names if name in element.attrib]


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=20, unique=True),
    st.lists(st.floats(0, 1), min_size=20, max_size=20),
)
def test_everything_is_drawn_inside_the_frame(sizes: list[int], ratios: list[float]) -> None:
    points = list(zip(sorted(sizes), ratios, strict=False))
    figure = line_figure(
        points,
        x_label="blocks",
        marks=[Mark(*points[0], "now")],
        levels=[(ratios[0], "target")],
        dots=points,
    )
    root = ElementTree.fromstring(figure)
    for element in root.iter():
        assert all(0 <= value <= 760 for value in numbers(element, "x1", "x2", "cx", "x"))
        assert all(0 <= value <= 320 for value in numbers(element, "y1", "y2", "cy"))
    assert len(root.findall("circle")) == len(points) + 1
    assert len(root.find("polyline").attrib["points"].split()) == len(points)


def test_a_ratio_ends_at_100_percent() -> None:
    figure = line_figure([(10, 0.5), (1000, 0.99)], x_label="blocks")
    texts = [element.text for element in ElementTree.fromstring(figure).iter("text")]
    assert "100 %" in texts
    assert "150 %" not in texts


def test_other_figures_have_plain_numbers_and_a_free_axis() -> None:
    figure = line_figure([(10, 5.0), (1000, 20.0)], x_label="GiB", y_label="points", percent=False)
    texts = [element.text for element in ElementTree.fromstring(figure).iter("text")]
    assert {"0", "25", "points", "GiB"} <= set(texts)


def test_words_are_escaped_and_marks_outside_left_out() -> None:
    figure = line_figure(
        [(10, 0.1), (20, 0.2)],
        x_label="<b>",
        title='"quoted" & <i>',
        marks=[Mark(15, 0.15, "<script>"), Mark(90, 0.3, "outside")],
    )
    assert "<script>" not in figure
    assert "<b>" not in figure
    assert "outside" not in figure
    assert ElementTree.fromstring(figure).attrib["aria-label"] == '"quoted" & <i>'


@pytest.mark.parametrize("high", [11, 70, 5_000, 10**6])
def test_axes_have_some_ticks_and_not_too_many(high: int) -> None:
    figure = line_figure([(10, 0.1), (high, 0.2)], x_label="")
    vertical = [line for line in ElementTree.fromstring(figure).iter("line") if line.attrib["x1"] == line.attrib["x2"]]
    assert 2 <= len(vertical) <= 8


def test_bars_are_stacked_and_as_long_as_their_numbers() -> None:
    root = ElementTree.fromstring(bar_figure([("today", 0.2, 0.0), ("more", 0.4, 0.1)], reference=0.2, x_label="ratio"))
    widths = [float(bar.attrib["width"]) for bar in root.iter("rect")]
    assert widths[1] == 0
    assert widths[2] == pytest.approx(2 * widths[0], abs=0.2)
    assert widths[3] == pytest.approx(widths[0] / 2, abs=0.2)
    assert "50.0 %" in [element.text for element in root.iter("text")]

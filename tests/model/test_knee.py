"""The knee: one definition for plans and findings."""

import numpy as np
import pytest

from vllm_hitratio_plugin.model.knee import knee


def test_the_corner_of_two_lines_is_the_knee() -> None:
    sizes = np.linspace(0, 100, 101)
    assert knee(sizes, np.minimum(sizes / 40, 1.0)) == 40


@pytest.mark.parametrize(("across", "up"), [(1.0, 1.0), (1e6, 1.0), (1.0, 1e-3)])
def test_units_do_not_matter(across: float, up: float) -> None:
    sizes = np.linspace(1, 50, 500)
    found = knee(across * sizes, up * (1 - np.exp(-sizes / 8)))
    expected = knee(sizes, 1 - np.exp(-sizes / 8))
    assert found is not None
    assert expected is not None
    assert found == pytest.approx(across * expected)


def test_there_the_slope_falls_below_that_of_the_chord() -> None:
    """1 - exp(-x / 8) up to 50: the slope exp(-x / 8) / 8 equals that of the chord."""
    sizes = np.linspace(0, 50, 50_001)
    chord = (1 - np.exp(-50 / 8)) / 50
    assert knee(sizes, 1 - np.exp(-sizes / 8)) == pytest.approx(-8 * np.log(8 * chord), abs=0.01)


@pytest.mark.parametrize("ratios", [[], [0.5], [0.4, 0.4], [0.4, 0.3]])
def test_a_curve_that_does_not_rise_has_none(ratios: list[float]) -> None:
    assert knee(range(len(ratios)), ratios) is None

"""The knee of a hit-ratio curve: the capacity beyond which another block gains less than the average one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def knee(sizes: Sequence[float] | NDArray[np.float64], ratios: Sequence[float] | NDArray[np.float64]) -> float | None:
    """The size at the knee of a curve given by its points, sizes ascending; None where the curve does not rise.

    It is the point farthest above the chord from the first point to the last (Satopaa et al. 2011, "Kneedle"). There
    the slope of the curve's concave hull falls below the slope of the chord. The result does not depend on the units
    of either axis. It does depend on where the curve ends, so both callers end it where it is nearly flat. A curve that
    is steepest at its end has no knee before it: the last size is returned.

    Example:
        >>> knee([0, 10, 20, 30, 40], [0.0, 0.5, 0.6, 0.65, 0.7])
        10.0
        >>> knee([0, 10, 20], [0.0, 0.1, 0.6])
        20.0
        >>> knee([0, 10, 20], [0.3, 0.3, 0.3]) is None
        True
    """
    x, y = np.asarray(sizes, dtype=float), np.asarray(ratios, dtype=float)
    if len(x) < 2 or y[-1] <= y[0]:
        return None
    chord = y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0])
    above = y - chord
    # Rounding may lift a point of a straight line above its chord.
    return float(x[int(np.argmax(above))] if above.max() > 1e-12 else x[-1])

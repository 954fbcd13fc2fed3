"""The recommended capacity, as it is shown."""

from __future__ import annotations

import math

from vllm_hitratio_plugin.snapshot import Snapshot


def recommended(snapshot: Snapshot, each: int | None) -> float | None:
    """Recommended blocks times ``each``, such as tokens per block; None where either is not known."""
    blocks = None if snapshot.estimate is None else snapshot.estimate.recommended_blocks
    return None if blocks is None or each is None else ceil(blocks) * each


def ceil(blocks: float) -> float:
    """The next whole number, like ``math.ceil``, but infinity and NaN stay what they are."""
    return math.ceil(blocks) if math.isfinite(blocks) else blocks

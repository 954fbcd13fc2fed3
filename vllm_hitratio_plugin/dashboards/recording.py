"""Recording rules: flows summed, then divided; for every engine, every model and the fleet.

Names are `level:metric:operation`. Series of the level `engine` keep all labels of their target.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_hitratio_plugin.dashboards.promql import (
    CEILING,
    CURVE_BLOCKS,
    ENGINE,
    FINITE,
    HEADLINE,
    HIT_BLOCKS,
    PREDICTED_BLOCKS,
    PROMPT_BLOCKS,
    PROMPT_TOKENS,
    Source,
)

_all = Source()

#: What is happening now, and what has been for long enough to be true.
SHORT, LONG = "5m", "1h"


@dataclass(frozen=True)
class Recording:
    """One recording rule."""

    name: str
    expr: str


def recordings() -> list[Recording]:
    """All recording rules, those first that others read."""
    rules = []
    for window in (SHORT, LONG):
        prompts = f"({_all.rate(PROMPT_BLOCKS, window)} > 0)"
        hits = _all.rate(HIT_BLOCKS, window)
        expected = f"sum without (estimator) ({_all.rate(PREDICTED_BLOCKS, window, HEADLINE)})"
        rules += [
            Recording(f"engine:hitratio_observed:ratio_rate{window}", f"{hits} / {prompts}"),
            Recording(f"engine:hitratio_predicted:ratio_rate{window}", f"{expected} / {prompts}"),
            Recording(f"engine:hitratio_gap:ratio_rate{window}", f"({hits} - {expected}) / {prompts}"),
            Recording(f"engine:hitratio_prompt_tokens:rate{window}", _all.rate(PROMPT_TOKENS, window)),
        ]
    for level, by in (("model_name", "model_name"), ("fleet", "")):
        for window in (SHORT, LONG):
            rules += [
                Recording(f"{level}:hitratio_observed:ratio_rate{window}", _all.observed(window, by)),
                Recording(f"{level}:hitratio_predicted:ratio_rate{window}", _all.predicted(window, by)),
                Recording(f"{level}:hitratio_gap:ratio_rate{window}", _all.gap(window, by)),
            ]
        rules += [
            Recording(f"{level}:hitratio_ceiling:ratio_rate{LONG}", _all.ratio(CURVE_BLOCKS, LONG, CEILING, by=by)),
            Recording(f"{level}:hitratio_prompt_tokens:rate{SHORT}", _all.flow(PROMPT_TOKENS, SHORT, by=by)),
            Recording(f"{level}:hitratio_gap_stderr:quadrature", _all.quadrature("hitratio_gap_stderr", LONG, by)),
        ]
    return [*rules, Recording(f"model_name:hitratio_curve:ratio_rate{LONG}", _curve())]


def _curve() -> str:
    """Hit ratio of a model's engines by capacity; an engine counts at the grid points that it has."""
    by = "model_name, capacity_blocks"
    there = (
        f"sum by ({by}) ({_all.rate(CURVE_BLOCKS, LONG, FINITE)} * 0"
        f" + on ({ENGINE}) group_left () {_all.rate(PROMPT_BLOCKS, LONG)})"
    )
    return f"{_all.flow(CURVE_BLOCKS, LONG, FINITE, by=by)} / ({there} > 0)"

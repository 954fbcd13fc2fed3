"""Recording rules: flows are summed, then divided; per engine, per model and for the fleet.

Names are ``level:metric:operation``. Series of the level ``engine`` keep all labels of their target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.dashboards.promql import (
    CURVE_BLOCKS,
    EXTERNAL_TOKENS,
    HEADLINE,
    HIT_BLOCKS,
    HIT_TOKENS,
    INFINITE,
    PREDICTED_BLOCKS,
    PROMPT_BLOCKS,
    PROMPT_TOKENS,
    Source,
)

#: What happens now, and what has happened for long enough to be real.
SHORT, LONG = Source("5m"), Source("1h")


def recordings() -> dict[str, str]:
    """Query by name of the recorded series."""
    return dict([*_of_engines(), *_of_groups()])


def inlined(expression: str) -> str:
    """The query with recorded series replaced by their queries: it reads exported metrics only."""
    queries = recordings()
    return re.sub(r"\b(?:engine|model_name|fleet):\w+:\w+", lambda match: f"({queries[match[0]]})", expression)


def _of_engines() -> Iterator[tuple[str, str]]:
    for source in (SHORT, LONG):
        prompts, hits = f"({source.rate(PROMPT_BLOCKS)} > 0)", source.rate(HIT_BLOCKS)
        predicted = f"sum without (estimator) ({source.rate(PREDICTED_BLOCKS, HEADLINE)})"
        yield f"engine:hitratio_observed:ratio_rate{source.window}", f"{hits} / {prompts}"
        yield f"engine:hitratio_predicted:ratio_rate{source.window}", f"{predicted} / {prompts}"
        yield f"engine:hitratio_divergence:ratio_rate{source.window}", f"({hits} - {predicted}) / {prompts}"
        tokens = f"({source.rate(HIT_TOKENS)} + {source.rate(EXTERNAL_TOKENS)})"
        yield f"engine:hitratio_served:ratio_rate{source.window}", f"{tokens} / ({source.rate(PROMPT_TOKENS)} > 0)"
        yield f"engine:hitratio_prompt_tokens:rate{source.window}", source.rate(PROMPT_TOKENS)


def _of_groups() -> Iterator[tuple[str, str]]:
    for level, by in (("model_name", "model_name"), ("fleet", "")):
        for source in (SHORT, LONG):
            yield f"{level}:hitratio_observed:ratio_rate{source.window}", source.observed(by)
            yield f"{level}:hitratio_served:ratio_rate{source.window}", source.served(by)
            yield f"{level}:hitratio_predicted:ratio_rate{source.window}", source.predicted(by)
            yield f"{level}:hitratio_divergence:ratio_rate{source.window}", source.divergence(by)
        yield f"{level}:hitratio_infinite_cache:ratio_rate1h", LONG.ratio(CURVE_BLOCKS, INFINITE, by=by)
        yield f"{level}:hitratio_prompt_tokens:rate5m", SHORT.flow(PROMPT_TOKENS, by=by)
        yield f"{level}:hitratio_divergence_stderr:quadrature", LONG.quadrature("hitratio_divergence_ratio_stderr", by)
    yield "model_name:hitratio_curve:ratio_rate1h", LONG.curve(by="model_name, capacity_blocks")

"""PromQL in the house style: sum the flows, then divide; no ratio of an idle denominator; labels equal to vLLM's."""

from __future__ import annotations

import re

#: One engine on one target: gauges of a fit exist once for each of these.
ENGINE = "job, instance, model_name, engine"

#: The estimator whose figure is the headline prediction.
HEADLINE = 'estimator="reuse_time"'

_METRIC = re.compile(r"\bhitratio_\w+|\bvllm[:_](?:prefix_cache|cache_config)_\w+")
_RECORDED = re.compile(r"\b(?:engine|model_name|fleet):hitratio_\w+:\w+")


def metrics_in(expression: str) -> list[str]:
    """Names of the metrics that a query reads, recorded ones left out, in order of appearance."""
    return list(dict.fromkeys(_METRIC.findall(_RECORDED.sub("", expression))))


def recorded_in(expression: str) -> list[str]:
    """Names of the recorded series that a query reads."""
    return list(dict.fromkeys(_RECORDED.findall(expression)))


class Source:
    """The same queries over a dashboard's variables or, in rules, over everything.

    Args:
        matchers: Label matchers that every selector carries, such as ``job=~"$job"``.
    """

    def __init__(self, matchers: str = "") -> None:
        self.matchers = matchers

    def __call__(self, metric: str, *more: str) -> str:
        """The selector of a metric."""
        matchers = ", ".join(part for part in (self.matchers, *more) if part)
        return f"{metric}{{{matchers}}}" if matchers else metric

    def rate(self, metric: str, window: str, *more: str) -> str:
        """Increase a second of a counter."""
        return f"rate({self(metric, *more)}[{window}])"

    def flow(self, metric: str, window: str, *more: str, by: str = "") -> str:
        """Sum over engines of a counter's rate."""
        grouping = f" by ({by})" if by else ""
        return f"sum{grouping} ({self.rate(metric, window, *more)})"

    def ratio(self, metric: str, window: str, *more: str, by: str = "") -> str:
        """Share of the prompt blocks, flows summed before the division; absent without traffic."""
        return f"{self.flow(metric, window, *more, by=by)} / ({self.flow(PROMPT_BLOCKS, window, by=by)} > 0)"

    def observed(self, window: str, by: str = "") -> str:
        """Observed hit ratio h."""
        return self.ratio(HIT_BLOCKS, window, by=by)

    def predicted(self, window: str, by: str = "", estimator: str = HEADLINE) -> str:
        """Predicted hit ratio ĥ of the same prompts."""
        return self.ratio(PREDICTED_BLOCKS, window, estimator, by=by)

    def gap(self, window: str, by: str = "") -> str:
        """Observed minus predicted."""
        hit = self.flow(HIT_BLOCKS, window, by=by)
        predicted = self.flow(PREDICTED_BLOCKS, window, HEADLINE, by=by)
        return f"({hit} - {predicted}) / ({self.flow(PROMPT_BLOCKS, window, by=by)} > 0)"

    def weighted(self, gauge: str, window: str, *more: str, by: str = "") -> str:
        """Mean of a gauge over engines, weighted by their traffic; only for what has no counter."""
        traffic = self.rate(PROMPT_BLOCKS, window)
        grouping = f" by ({by})" if by else ""
        present = f"({traffic} and on ({ENGINE}) {self(gauge, *more)})"
        return f"sum{grouping} ({self(gauge, *more)} * on ({ENGINE}) {traffic}) / (sum{grouping} {present} > 0)"

    def quadrature(self, stderr: str, window: str, by: str = "") -> str:
        """Standard error of a traffic-weighted mean, the engines' errors taken as independent."""
        traffic = self.rate(PROMPT_BLOCKS, window)
        grouping = f" by ({by})" if by else ""
        present = f"({traffic} and on ({ENGINE}) {self(stderr)})"
        return f"sqrt(sum{grouping} (({self(stderr)} * on ({ENGINE}) {traffic}) ^ 2)) / (sum{grouping} {present} > 0)"


PROMPT_BLOCKS = "hitratio_prompt_blocks_total"
HIT_BLOCKS = "hitratio_hit_blocks_total"
PROMPT_TOKENS = "hitratio_prompt_tokens_total"
PREDICTED_BLOCKS = "hitratio_predicted_hit_blocks_total"
CURVE_BLOCKS = "hitratio_curve_hit_blocks_total"
SHADOW_CURVE_BLOCKS = "hitratio_shadow_curve_hit_blocks_total"
FATES = "hitratio_blocks_total"
CEILING = 'capacity_blocks="+Inf"'
FINITE = 'capacity_blocks!="+Inf"'

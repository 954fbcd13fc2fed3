"""Queries that several dashboards and rules share: flows are summed before they are divided, idle engines left out."""

from __future__ import annotations

#: One engine of one target: each gauge of an estimate exists once for each combination of these labels.
ENGINE = "job, instance, model_name, engine"

#: The estimator of the headline prediction.
HEADLINE = 'estimator="reuse_time"'

PROMPT_BLOCKS = "hitratio_prompt_blocks_total"
HIT_BLOCKS = "hitratio_hit_blocks_total"
PROMPT_TOKENS = "hitratio_prompt_tokens_total"
HIT_TOKENS = "hitratio_hit_tokens_total"
EXTERNAL_TOKENS = "hitratio_external_hit_tokens_total"
PREDICTED_BLOCKS = "hitratio_predicted_hit_blocks_total"
CURVE_BLOCKS = "hitratio_curve_hit_blocks_total"
SHADOW_CURVE_BLOCKS = "hitratio_shadow_curve_hit_blocks_total"
OUTCOME_BLOCKS = "hitratio_prompt_blocks_by_outcome_total"
INFINITE = 'capacity_blocks="+Inf"'
FINITE = 'capacity_blocks!="+Inf"'


class Source:
    """The same queries over a dashboard's variables or, in rules, over all targets.

    Args:
        matchers: Label matchers of every selector, such as ``job=~"$job"``.
        window: Range of every rate, such as ``5m``.
    """

    def __init__(self, window: str, matchers: str = "") -> None:
        self.window = window
        self.matchers = matchers

    def __call__(self, metric: str, *more: str) -> str:
        """The selector of a metric."""
        matchers = ", ".join(part for part in (self.matchers, *more) if part)
        return f"{metric}{{{matchers}}}" if matchers else metric

    def rate(self, counter: str, *more: str) -> str:
        """Increase of a counter per second."""
        return f"rate({self(counter, *more)}[{self.window}])"

    def flow(self, counter: str, *more: str, by: str = "") -> str:
        """Sum over engines of a counter's rate."""
        return f"sum{_by(by)} ({self.rate(counter, *more)})"

    def ratio(self, counter: str, *more: str, by: str = "") -> str:
        """Share of the prompt blocks; no result without traffic."""
        return f"{self.flow(counter, *more, by=by)} / ({self.flow(PROMPT_BLOCKS, by=by)} > 0)"

    def observed(self, by: str = "") -> str:
        """Observed hit ratio."""
        return self.ratio(HIT_BLOCKS, by=by)

    def external(self, by: str = "") -> str:
        """Share of the prompt tokens that a KV connector loaded; no result where none did."""
        return f"({self.flow(EXTERNAL_TOKENS, by=by)} > 0) / ({self.flow(PROMPT_TOKENS, by=by)} > 0)"

    def served(self, by: str = "") -> str:
        """Share of the prompt tokens that were local hits or loaded."""
        tokens = f"{self.flow(HIT_TOKENS, by=by)} + {self.flow(EXTERNAL_TOKENS, by=by)}"
        return f"({tokens}) / ({self.flow(PROMPT_TOKENS, by=by)} > 0)"

    def served_with_tier(self, by: str = "") -> str:
        """The same where a KV connector loads; no result elsewhere."""
        return f"{self.served(by)} and {self.external(by)}"

    def predicted(self, by: str = "", estimator: str = HEADLINE) -> str:
        """Predicted hit ratio of the same prompts."""
        return self.ratio(PREDICTED_BLOCKS, estimator, by=by)

    def divergence(self, by: str = "") -> str:
        """Observed minus predicted hit ratio."""
        hit, predicted = self.flow(HIT_BLOCKS, by=by), self.flow(PREDICTED_BLOCKS, HEADLINE, by=by)
        return f"({hit} - {predicted}) / ({self.flow(PROMPT_BLOCKS, by=by)} > 0)"

    def curve(self, counter: str = CURVE_BLOCKS, by: str = "capacity_blocks") -> str:
        """Hit ratio by capacity; each engine counts at the capacities of its own grid."""
        traffic = (
            f"sum by ({by}) ({self.rate(counter, FINITE)} * 0 + on ({ENGINE}) group_left () {self.rate(PROMPT_BLOCKS)})"
        )
        return f"{self.flow(counter, FINITE, by=by)} / ({traffic} > 0)"

    def weighted(self, gauge: str, by: str = "") -> str:
        """Mean of a gauge over engines, weighted by traffic; for gauges without a counter behind them."""
        weighed = f"{self(gauge)} * on ({ENGINE}) {self.rate(PROMPT_BLOCKS)}"
        return f"sum{_by(by)} ({weighed}) / {self._traffic_with(gauge, by)}"

    def quadrature(self, stderr: str, by: str = "") -> str:
        """Standard error of :meth:`weighted`; errors of engines count as independent."""
        weighed = f"({self(stderr)} * on ({ENGINE}) {self.rate(PROMPT_BLOCKS)}) ^ 2"
        return f"sqrt(sum{_by(by)} ({weighed})) / {self._traffic_with(stderr, by)}"

    def _traffic_with(self, gauge: str, by: str) -> str:
        """Traffic of the engines that export the gauge."""
        return f"(sum{_by(by)} ({self.rate(PROMPT_BLOCKS)} and on ({ENGINE}) {self(gauge)}) > 0)"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""

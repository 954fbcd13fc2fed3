"""The look of all panels: one colour per quantity, thresholds, and overrides of single series or columns."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models

OBSERVED, PREDICTED, CEILING, TARGET = "blue", "orange", "green", "purple"
NEUTRAL, MUTED, TIER = "text", "#8e8e99", "light-blue"

#: From what the cache served, over what it lost, to what no cache can serve.
OUTCOME_COLORS = {
    "hit": OBSERVED,
    "capacity": "orange",
    "in_flight": "green",
    "unexplained": "red",
    "compulsory": "#5b7083",
    "partial": MUTED,
}

Override = Builder[models.DashboardFieldConfigSourceOverrides]


def fixed(color: str) -> builders.FieldColor:
    """A colour that does not depend on the value."""
    return builders.FieldColor().mode(models.FieldColorModeId.FIXED).fixed_color(color)


def by_value() -> builders.FieldColor:
    """The colour of the highest threshold that the value reaches."""
    return builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)


def palette() -> builders.FieldColor:
    """Each series in the next colour of Grafana's palette."""
    return builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC)


def steps(*colors: tuple[float | None, str]) -> builders.ThresholdsConfig:
    """Colours from a value on; the first has no lower end."""
    thresholds = [models.Threshold(value=value, color=color) for value, color in colors]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(thresholds)


def override(name: str, properties: dict[str, Any], *, regex: bool = False) -> Override:
    """Other properties for the series or field of a name; the keys are Grafana's property paths."""
    matcher = models.MatcherConfig(id_val="byRegexp" if regex else "byName", options=name)
    values = [models.DynamicConfigValue(id_val=path, value=value) for path, value in properties.items()]
    return builders.DashboardFieldConfigSourceOverrides().matcher(matcher).properties(values)


def colored(name: str, color: str, properties: dict[str, Any] | None = None, *, regex: bool = False) -> Override:
    """A colour of its own for a series."""
    return override(name, {"color": fixed(color).build(), **(properties or {})}, regex=regex)


def line(name: str, color: str, *, width: int = 2, dashed: bool = False, regex: bool = False) -> Override:
    """A curve with its own colour and line."""
    dashes = {"custom.lineStyle": {"fill": "dash", "dash": [8, 6]}} if dashed else {}
    return colored(name, color, {"custom.lineWidth": width, **dashes}, regex=regex)


def outcome_colors() -> list[Override]:
    """The colours of the outcomes, for series that are named after them."""
    return [colored(name, color) for name, color in OUTCOME_COLORS.items()]

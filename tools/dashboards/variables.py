"""The variables of both dashboards, and the queries over what the reader selects."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models

from tools.dashboards.promql import Source

DATA_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

#: The matchers of vLLM's own dashboards; all queries carry them.
MATCHERS = 'job=~"$job", model_name=~"$model_name", instance=~"$instance", engine=~"$engine"'

#: Over the window that the reader chooses: a ratio needs several hundred requests.
CHOSEN = Source("$window", MATCHERS)

#: Over the shortest window that has enough scrapes.
RECENT = Source("$__rate_interval", MATCHERS)

#: Over the whole time range.
WHOLE = Source("$__range", MATCHERS)

_WINDOWS = ("1m", "2m", "5m", "10m", "30m", "1h", "6h", "1d")
_AUTO = "$__auto_interval_window"


def variables() -> Iterator[Builder[models.VariableModel]]:
    """vLLM's own variables in the same order, the window, and ad hoc filters."""
    yield _refreshed(
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        models.VariableRefresh.ON_DASHBOARD_LOAD,
    )
    matchers: list[str] = []
    for name, label in (("job", "Job"), ("model_name", "Model"), ("instance", "Instance"), ("engine", "Engine")):
        selector = f"{{{', '.join(matchers)}}}" if matchers else ""
        query: dict[str, object] = {
            "query": f"label_values(hitratio_build_info{selector}, {name})",
            "refId": f"variable-{name}",
        }
        variable = builders.QueryVariable(name).label(label).query(query).datasource(DATA_SOURCE)
        variable.multi(True).include_all(True).all_value(".+").sort(models.VariableSort.ALPHABETICAL_ASC)
        variable.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
        yield variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        matchers.append(f'{name}=~"${name}"')
    options = [
        models.VariableOption(selected=span == "auto", text=span, value=_AUTO if span == "auto" else span)
        for span in ("auto", *_WINDOWS)
    ]
    window = builders.IntervalVariable("window").label("Window").values(",".join(_WINDOWS)).current(options[0])
    window.description(
        "The time span that ratios are taken over. Short windows are noisy; auto is at least 10 minutes, like the"
        " engines' own window."
    )
    window.auto(True).min_interval("10m").step_count(12).options(options)
    yield _refreshed(window, models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    yield builders.AdHocVariable("filters").label("Filters").datasource(DATA_SOURCE)


def _refreshed(
    variable: Builder[models.VariableModel], refresh: models.VariableRefresh
) -> Builder[models.VariableModel]:
    """When Grafana computes its values; the SDK's builders of these two kinds cannot say it."""
    variable.build().refresh = refresh
    return variable

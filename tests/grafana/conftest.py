"""What the tests of dashboards and rules share."""

import shutil

import pytest

from tests.grafana.grafana_queries import PAGES, Json


@pytest.fixture(params=PAGES, ids=lambda page: page["uid"])
def page(request: pytest.FixtureRequest) -> Json:
    page: Json = request.param
    return page


@pytest.fixture(scope="session")
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    return path

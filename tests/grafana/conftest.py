"""What the tests of dashboards and rules share."""

import shutil

import pytest
from grafana_queries import PAGES

from vllm_hitratio_plugin.dashboards.dashboard import Dashboard


@pytest.fixture(params=PAGES, ids=lambda page: page.uid)
def page(request: pytest.FixtureRequest) -> Dashboard:
    return request.param


@pytest.fixture(scope="session")
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    return path

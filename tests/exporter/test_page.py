"""The page for browsers: self-contained, safe, and rendered by a real one."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from tests.support.example_snapshots import snapshot
from tests.support.virtual_engine import present
from vllm_hitratio_plugin.exporter.page import render
from vllm_hitratio_plugin.exporter.server import Exporter
from vllm_hitratio_plugin.findings.rules import diagnose
from vllm_hitratio_plugin.snapshot_json import from_json

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HEIGHT = 3500
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    server = Exporter("127.0.0.1", 0, snapshot)
    yield server
    server.close()


def get(exporter: Exporter, path: str, accept: str) -> tuple[str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{exporter.port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("/hitratio", "*/*", "application/json"),
        ("/hitratio", "application/json", "application/json"),
        ("/hitratio", "application/json, text/html", "application/json"),
        ("/hitratio", BROWSER, "text/html; charset=utf-8"),
        ("/hitratio.json", BROWSER, "application/json"),
    ],
)
def test_browsers_get_the_page_and_programs_json(exporter: Exporter, path: str, accept: str, kind: str) -> None:
    assert get(exporter, path, accept)[0] == kind


def test_json_carries_the_findings_and_is_still_a_snapshot(exporter: Exporter) -> None:
    body = get(exporter, "/hitratio", "*/*")[1]
    assert [each["rule"] for each in json.loads(body)["findings"]] == [each.rule for each in diagnose(snapshot())]
    assert from_json(body) == snapshot()


def test_the_page_shows_numbers_findings_curve_and_outcomes() -> None:
    taken = snapshot()
    page = render(taken, diagnose(taken))
    assert f"{100 * present(taken.estimate.observed):.1f} %" in page
    assert diagnose(taken)[0].rule in page
    points = re.search(r'<polyline points="([^"]+)"', page)
    assert points is not None
    assert len(points.group(1).split()) == len(taken.estimate.curve)
    assert page.count("<article") == len(diagnose(taken))
    widths = [float(width) for width in re.findall(r'<span style="width: ([\d.]+)%', page)]
    assert sum(widths) == pytest.approx(100, abs=0.01)


def test_no_findings_is_said() -> None:
    page = render(snapshot(), [])
    assert "No findings." in page
    assert "<article" not in page


def test_the_page_needs_no_network_and_trusts_no_name() -> None:
    taken = replace(snapshot(), model_name='<script>alert("1")</script>', degraded={"hook": "<b>words</b>"})
    page = render(taken, diagnose(taken))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>words" not in page
    assert not re.search(r"https?://|src=|@import|url\(", page)


@pytest.mark.parametrize("facts", [{"counters": None, "estimate": None}, {"estimate": None}, {"modelled": False}])
def test_what_was_not_measured_is_left_out(facts: dict[str, Any]) -> None:
    taken = snapshot(**facts)
    page = render(taken, diagnose(taken))
    assert page.endswith("</html>")
    for part in ("<svg", ">Predicted<", ">Ceiling<", ">For the target<"):
        assert part in render(snapshot(), [])
        assert part not in page
    assert (">Observed<" in page) == (taken.estimate is not None)
    assert "None" not in page
    assert "nan" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to render the page with")
@pytest.mark.parametrize(("dark", "width"), [(False, 900), (True, 900), (False, 500)], ids=["light", "dark", "phone"])
def test_a_browser_renders_it(exporter: Exporter, tmp_path: Path, dark: bool, width: int) -> None:
    assert CHROMIUM is not None
    picture = tmp_path / "page.png"
    subprocess.run(
        [
            *(
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={tmp_path}",
            ),
            *(f"--window-size={width},{HEIGHT}", f"--blink-settings=preferredColorScheme={0 if dark else 1}"),
            *(f"--screenshot={picture}", f"http://127.0.0.1:{exporter.port}/hitratio"),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    pixels = (matplotlib.image.imread(picture)[:, :, :3] * 255).round().astype(int)
    assert pixels.shape[:2] == (HEIGHT, width)
    assert tuple(pixels[0, 0]) == ((20, 23, 28) if dark else (255, 255, 255))
    # Hits, and what was lost to capacity, in the bar.
    for color in ((107, 158, 245), (240, 160, 75)) if dark else ((47, 111, 222), (217, 120, 15)):
        assert (np.abs(pixels - color).max(axis=2) == 0).sum() > 100

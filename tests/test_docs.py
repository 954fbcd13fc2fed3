"""The pages that say what the code does are made from it, or checked against it."""

import re
import subprocess
import sys
from pathlib import Path

from vllm_hitratio_plugin.metrics.catalogue import METRICS, sample_names
from vllm_hitratio_plugin.settings import OPTIONS

ROOT = Path(__file__).parent.parent


def test_the_metrics_page_is_up_to_date() -> None:
    script = ROOT / "scripts" / "metrics_reference.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_metric_named_in_a_page_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    known = sample_names() | {metric.name for metric in METRICS if metric.kind == "histogram"}
    unknown: dict[str, set[str]] = {}
    for page in pages:
        for name in re.findall(r"`(hitratio_[a-z_]+)(?:\{[^`]*\})?`", page.read_text()):
            if name not in known and not name.endswith("_"):
                unknown.setdefault(page.name, set()).add(name)
    assert not unknown


def test_the_readme_names_every_option() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [option.flag for option in OPTIONS if option.flag not in readme]
    assert not missing


def test_every_link_between_pages_leads_somewhere() -> None:
    dead = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert not dead

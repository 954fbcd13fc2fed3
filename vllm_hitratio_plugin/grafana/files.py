"""The generated files, as this package carries them."""

from __future__ import annotations

from pathlib import Path

from vllm_hitratio_plugin.grafana.links import GRAFANA_BASE, RUNBOOK_BASE, readdressed

_FOLDER = Path(__file__).with_name("generated")

#: What an installation needs; pyproject.toml puts the same files into the wheel.
PATTERNS = ("dashboards/*.json", "alerting/*.yaml", "prometheus/rules.yml", "kubernetes/*.yaml")


def texts(runbooks: str = RUNBOOK_BASE, grafana: str = GRAFANA_BASE) -> dict[str, str]:
    """Content by path below the folder, with these base addresses."""
    paths = sorted(path for pattern in PATTERNS for path in _FOLDER.glob(pattern))
    contents = {path.relative_to(_FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {name: readdressed(content, runbooks, grafana) for name, content in contents.items()}


def write(folder: Path, runbooks: str, grafana: str) -> list[Path]:
    """Write all files below the folder; returns their paths."""
    written = []
    for name, content in texts(runbooks, grafana).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        written.append(path)
    return written

"""The panels' descriptions: docs/dashboards.md has one section per dashboard, and in it one per panel."""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "docs" / "dashboards.md"


def descriptions(dashboard: str) -> dict[str, str]:
    """Description by title of the panel; raises KeyError for an unknown dashboard."""
    sections = _sections(FILE.read_text(encoding="utf-8"), "##")
    return {title: _unwrapped(text) for title, text in _sections(sections[dashboard], "###").items()}


def _sections(text: str, mark: str) -> dict[str, str]:
    _, *parts = re.split(rf"(?m)^{mark} (.+)\n", text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _unwrapped(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))

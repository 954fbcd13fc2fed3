"""Addresses in the generated files. They are placeholders until somebody gives the real ones."""

from __future__ import annotations

#: Where the pages of docs/runbooks/ are published; ``/<Alert>.md`` is appended.
RUNBOOK_BASE = "https://runbooks.example.com/hitratio"

#: The Grafana that people open from an alert; ``/d/<uid>`` is appended.
GRAFANA_BASE = "https://grafana.example.com"


def readdressed(text: str, runbooks: str, grafana: str) -> str:
    """The text with these base addresses instead of the placeholders."""
    return text.replace(RUNBOOK_BASE, runbooks.rstrip("/")).replace(GRAFANA_BASE, grafana.rstrip("/"))

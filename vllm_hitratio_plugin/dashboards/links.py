"""Addresses that the generated files carry. Change them here (or with the generator's options), nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

#: Where the pages of docs/runbooks/ are published; `<Alert>.md` is appended.
RUNBOOK_BASE = "https://runbooks.example.com/hitratio"

#: The Grafana that people open from an alert; `/d/<uid>` is appended.
GRAFANA_BASE = "https://grafana.example.com"


@dataclass(frozen=True)
class Links:
    """Base addresses without a slash at the end."""

    runbooks: str = RUNBOOK_BASE
    grafana: str = GRAFANA_BASE

    def runbook(self, alert: str) -> str:
        """Address of an alert's runbook page."""
        return f"{self.runbooks.rstrip('/')}/{alert}.md"

    def dashboard(self, uid: str, variables: str) -> str:
        """Address of a dashboard, with its variables as a query string."""
        return f"{self.grafana.rstrip('/')}/d/{uid}?{variables}"

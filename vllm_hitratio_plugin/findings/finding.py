"""A finding: one reason why the hit ratio is what it is, with the numbers that show it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["critical", "warning", "info", "ok"]

#: From worst to best.
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info", "ok")


@dataclass(frozen=True)
class Finding:
    """One finding, in words that need no knowledge of the model."""

    rule: str
    """The rule's id. It is stable, so scripts may match it; docs/findings.md describes each."""
    severity: Severity
    """critical: nothing can hit, or much of what should hit is lost; warning: act on it; info: know it."""
    confidence: float
    """0 to 1: how certain the cause is, given the evidence."""
    summary: str
    """One sentence."""
    evidence: tuple[str, ...] = ()
    """Sentences with numbers."""
    causes: tuple[str, ...] = ()
    """Likely causes, the likeliest first."""
    actions: tuple[str, ...] = ()
    """What to do, in this order."""
    metrics: tuple[str, ...] = ()
    """Where to look further."""
    loss: float | None = None
    """Upper bound of the hit ratio that this costs; None where it is unknown."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def ranked(findings: list[Finding]) -> list[Finding]:
    """By severity, then by loss times confidence; findings that tie keep the given order."""
    return sorted(
        findings, key=lambda finding: (SEVERITIES.index(finding.severity), -(finding.loss or 0.0) * finding.confidence)
    )

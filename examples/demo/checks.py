"""What the demo promises, each with its figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from examples.demo.outcome import Outcome
from examples.demo.settings import Settings

DIVERGENCE_LIMIT = 0.02
DIVERGENCE_STDERRS = 3.0
TARGET_LIMIT = 0.03


@dataclass(frozen=True)
class Check:
    """One thing that must hold."""

    name: str
    detail: str
    passed: bool


def number(value: float | None, digits: int = 4) -> str:
    """A figure in words; a dash where it was not measured."""
    return "-" if value is None else f"{value:,.{digits}f}"


def check(settings: Settings, trials: Sequence[Outcome]) -> list[Check]:
    """All checks: of the first trial, and of the second one at the recommended capacity if there was one."""
    first, second = trials[0], trials[1] if len(trials) > 1 else None
    sample, estimate, predicted = first.sample, first.estimate, first.window.predicted
    observed, ceiling, stderr = estimate.observed, estimate.ceiling, estimate.divergence_stderr
    reached = second.estimate.observed if second else None
    failures = sum(each.sample.failures for each in trials)
    agree = [each.exporter_agrees for each in trials if each.exporter_agrees is not None]
    degraded = sorted({reason for each in trials for reason in each.degraded})
    error = None if observed is None or predicted is None else abs(observed - predicted)
    stderrs = abs(estimate.divergence) / stderr if estimate.divergence is not None and stderr else None
    miss = None if reached is None else abs(reached - settings.target)
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
            f"{number(observed)} of {number(ceiling)}",
            observed is not None and ceiling is not None and 0.2 * ceiling <= observed <= 0.8 * ceiling,
        ),
        Check(
            "observed is what was predicted",
            f"|{number(observed)} - {number(predicted)}| = {number(error)} (at most {DIVERGENCE_LIMIT:g})",
            error is not None and error <= DIVERGENCE_LIMIT,
        ),
        Check(
            "the difference is within its error",
            f"{number(estimate.divergence)} is {number(stderrs, 1)} standard errors of {number(stderr)}"
            f" (at most {DIVERGENCE_STDERRS:g})",
            stderrs is not None and stderrs <= DIVERGENCE_STDERRS,
        ),
        Check(
            "the recommended capacity reaches the target",
            f"|{number(reached)} - {settings.target:g}| = {number(miss)} (at most {TARGET_LIMIT:g})",
            miss is not None and miss <= TARGET_LIMIT,
        ),
        *(_outcomes_add_up(each) for each in trials),
    ]
    if agree:  # on a real vLLM
        found += [_counters_equal(each) for each in trials]
        words = ", ".join("yes" if each else "no" for each in agree)
        found.append(Check("the engine's own exporter says the same as the server", words, all(agree)))
    return [*found, Check("the plugin is not degraded", ", ".join(degraded) or "no reason given", not degraded)]


def _outcomes_add_up(trial: Outcome) -> Check:
    measured, blocks = sum(trial.estimate.outcomes), round(trial.window.window_blocks)
    final, final_blocks = sum(trial.final.outcomes), trial.final.prompt_blocks
    return Check(
        f"the outcomes add up to the prompt blocks, at {trial.capacity_blocks:,} blocks",
        f"{measured:,} of {blocks:,} measured, {final:,} of {final_blocks:,} in all",
        measured == blocks > 0 and final == final_blocks,
    )


def _counters_equal(trial: Outcome) -> Check:
    ours, vllm = trial.final, trial.vllm
    hits, prompts = (vllm.hits, vllm.queries) if vllm else (None, None)
    return Check(
        f"the plugin counts as vLLM does, at {trial.capacity_blocks:,} blocks",
        f"hit tokens {ours.hit_tokens:,} and {number(hits, 0)},"
        f" prompt tokens {ours.prompt_tokens:,} and {number(prompts, 0)}",
        ours.hit_tokens == hits and ours.prompt_tokens == prompts,
    )

"""``hitratio doctor``: why a running server's hit ratio is what it is."""

import argparse
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vllm_hitratio_plugin.cli.output import print_json
from vllm_hitratio_plugin.cli.values import pause
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.findings.plugin_degraded import server_degraded
from vllm_hitratio_plugin.findings.rules import diagnose, diagnose_fleet
from vllm_hitratio_plugin.findings.without_plugin import all_without_plugin, figures, without_plugin
from vllm_hitratio_plugin.metrics.fetch import FetchError, fetch
from vllm_hitratio_plugin.metrics.reader import Page
from vllm_hitratio_plugin.metrics.series import Identity
from vllm_hitratio_plugin.snapshot import REUSE_TIME, Snapshot, VllmCounters
from vllm_hitratio_plugin.wording import capacity, count, duration, percent

_COLORS = {"critical": "1;31", "warning": "1;33", "info": "1;36", "ok": "1;32"}
_WIDEST = 110


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = (
        "Exit code 0: nothing to do; 1: a finding of severity warning or critical; 2: bad input, or no answer from a "
        "server."
    )
    parser.add_argument(
        "urls",
        nargs="+",
        metavar="URL",
        help="a vLLM server or the plugin's exporter: base address, /metrics or /hitratio; several form a fleet",
    )
    parser.add_argument("--json", action="store_true", help="for programs; with --watch one line each time")
    parser.add_argument(
        "--watch",
        nargs="?",
        const=10.0,
        type=pause,
        metavar="SECONDS",
        help="repeat (default: every 10 s)",
    )
    parser.add_argument("--timeout", type=pause, default=5.0, metavar="SECONDS", help="for an answer (default: 5)")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class EngineReport:
    """One engine and what was found."""

    url: str
    model_name: str
    engine: str
    snapshot: Snapshot | None
    """None where the page has none."""
    findings: list[Finding]
    labels: dict[str, str]
    """What tells it from other engines of its page, beyond model_name and engine."""
    plugin: bool = True
    """Whether the page shows that the plugin is on."""


@dataclass(frozen=True)
class Diagnosis:
    """The state of all servers at one moment."""

    engines: list[EngineReport]
    fleet: dict[str, list[Finding]]
    """By model: what only several engines show together."""
    failures: tuple[str, ...] = ()
    """Servers that gave no usable answer, a sentence each."""

    @property
    def code(self) -> int:
        """2 if a server did not answer, 1 if there is something to do."""
        if self.failures:
            return 2
        everything = [finding for engine in self.engines for finding in engine.findings]
        everything += [finding for findings in self.fleet.values() for finding in findings]
        return int(any(finding.severity in ("critical", "warning") for finding in everything))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "code": self.code,
            "engines": [
                {
                    "url": engine.url,
                    "model_name": engine.model_name,
                    "engine": engine.engine,
                    "labels": engine.labels,
                    "plugin": engine.plugin,
                    "findings": [finding.to_dict() for finding in engine.findings],
                }
                for engine in self.engines
            ],
            "fleet": {model: [finding.to_dict() for finding in findings] for model, findings in self.fleet.items()},
            "failures": list(self.failures),
        }


def run(options: argparse.Namespace) -> int:
    """Diagnose once, or until interrupted."""
    pages, failures = _fetch_all(options)
    if not pages:
        _complain(failures)
        return 2
    report = replace(examine(pages, {}), failures=failures)
    if options.watch is None:
        if options.json:
            print_json(report.to_dict())
        else:
            print(Printer().report(report), flush=True)
        _complain(failures)
        return report.code
    earlier = pages
    while True:
        if pages and options.json:
            print(json.dumps(report.to_dict(), ensure_ascii=False), flush=True)
        elif pages:
            clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
            print(
                f"{clear}{time.strftime('%H:%M:%S')}, every {duration(options.watch)}\n{Printer().report(report)}",
                flush=True,
            )
        _complain(failures)
        time.sleep(options.watch)
        pages, failures = _fetch_all(options)
        report = replace(examine(pages, earlier), failures=failures)


def _fetch_all(options: argparse.Namespace) -> tuple[dict[str, Page], tuple[str, ...]]:
    """Every server's page by address, and a sentence for each that gave none."""
    pages, failures = {}, []
    for url in dict.fromkeys(options.urls):
        try:
            pages[url] = fetch(url, options.timeout)
        except FetchError as error:
            failures.append(str(error))
    return pages, tuple(failures)


def _complain(failures: tuple[str, ...]) -> None:
    for sentence in failures:
        print(f"hitratio doctor: {' '.join(sentence.split())}", file=sys.stderr, flush=True)


def examine(pages: dict[str, Page], earlier: dict[str, Page]) -> Diagnosis:
    """Diagnose every engine of every page, given what its page said earlier."""
    engines = []
    plain: dict[str, list[VllmCounters]] = {}
    for url, page in pages.items():
        before = earlier.get(url, Page([], []))
        counters = {Identity.of(old): old for old in before.without_plugin}
        shared = _shared_labels([*page.snapshots, *page.without_plugin])
        for one in page.snapshots:
            engines.append(_report(url, one, one, diagnose(one), shared))
        silent = page.without_plugin
        if page.degraded and not (silent or page.snapshots):
            silent = [VllmCounters("", "")]
        for each in silent:
            old = counters.get(Identity.of(each))
            if page.degraded:
                finding = server_degraded(page.degraded, figures(each, old))
            else:
                finding = without_plugin(each, old, looked_at=page.looked_at, others=bool(page.snapshots))
                plain.setdefault(each.model_name, []).append(each)
            engines.append(_report(url, each, None, [finding], shared, plugin=bool(page.degraded)))
    fleet = diagnose_fleet([engine.snapshot for engine in engines if engine.snapshot is not None])
    for model, together in plain.items():
        if (total := all_without_plugin(together)) is not None:
            fleet.setdefault(model, []).append(total)
    return Diagnosis(engines, fleet)


def _report(
    url: str,
    engine: Snapshot | VllmCounters,
    snapshot: Snapshot | None,
    findings: list[Finding],
    shared: set[tuple[str, str]],
    *,
    plugin: bool = True,
) -> EngineReport:
    labels = dict(item for item in engine.labels.items() if item not in shared)
    return EngineReport(url, engine.model_name, engine.engine, snapshot, findings, labels, plugin)


def _shared_labels(engines: Sequence[Snapshot | VllmCounters]) -> set[tuple[str, str]]:
    return set.intersection(*(set(engine.labels.items()) for engine in engines)) if engines else set()


class Printer:
    """A report as text, in colour on a terminal (https://no-color.org)."""

    def __init__(self) -> None:
        self._colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)

    def report(self, report: Diagnosis) -> str:
        """The whole report."""
        parts = []
        for engine in report.engines:
            parts.append("\n".join([self._title(engine), *(self._finding(finding) for finding in engine.findings)]))
        for model, findings in report.fleet.items():
            parts.append("\n".join([self._paint("1", f"{model}, all engines"), *map(self._finding, findings)]))
        return "\n\n".join(parts)

    def _title(self, engine: EngineReport) -> str:
        labels = [f"{label} {value}" for label, value in engine.labels.items()]
        name = [engine.model_name or "vLLM", *([f"engine {engine.engine}"] if engine.engine else []), *labels]
        lines = [self._paint("1", ", ".join([*name, engine.url]))]
        snapshot = engine.snapshot
        if snapshot is not None:
            lines.append(self._fold(headline(snapshot), "", ""))
        return "\n".join(lines)

    def _finding(self, finding: Finding) -> str:
        label = f" {finding.severity.upper()} "
        lines = [
            "",
            f"{self._paint(_COLORS[finding.severity] + ';7', label) if self._colored else f'[{label.strip()}]'} "
            f"{self._paint('1', finding.rule)} {self._paint('2', f'(confidence {round(100 * finding.confidence)} %)')}",
            self._fold(finding.summary, "  ", "  "),
        ]
        for heading, sentences, mark in (
            ("Evidence", finding.evidence, "-"),
            ("Likely causes", finding.causes, "?"),
            ("What to do", finding.actions, ">"),
        ):
            if sentences:
                lines.append(self._paint("2", f"  {heading}"))
                lines += [self._fold(sentence, f"    {mark} ", "      ") for sentence in sentences]
        if finding.metrics and finding.severity != "ok":
            lines.append(self._paint("2", self._fold(f"Metrics: {', '.join(finding.metrics)}", "  ", "    ")))
        return "\n".join(lines)

    def _fold(self, text: str, first: str, rest: str) -> str:
        return textwrap.fill(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colored else text


def headline(snapshot: Snapshot) -> str:
    """The main figures of one engine, in one line."""
    words = []
    estimate = snapshot.estimate
    if estimate is not None:
        for name, value, shown in (
            ("hit ratio", estimate.observed, True),
            ("predicted", estimate.predicted.get(REUSE_TIME), snapshot.modelled),
            ("at most", estimate.ceiling, snapshot.modelled),
        ):
            if value is not None and shown:
                words.append(f"{name} {percent(value)}")
        loaded = Period.of(snapshot).share("hit", "external")
        if loaded:
            words.append(f"another {percent(loaded)} from a second tier")
        words.append(f"{estimate.requests:,} requests in the last {duration(estimate.window_seconds)}")
    words.append(f"{capacity(snapshot.capacity_blocks, snapshot.block_bytes)} of {snapshot.block_size:,} tokens")
    if snapshot.match_unit is not None:
        words.append(f"hits in units of {count(snapshot.match_unit, 'token')}")
    if snapshot.vllm is not None and snapshot.vllm.capacity_tokens is not None and not snapshot.modelled:
        words.append(f"{snapshot.vllm.capacity_tokens:,} tokens in all")
    return "; ".join(words)

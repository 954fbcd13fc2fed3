"""``hitratio doctor``: why a running server's hit ratio is what it is."""

import argparse
import json
import os
import shutil
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from typing import Any

from vllm_hitratio_plugin.cli.output import print_json
from vllm_hitratio_plugin.cli.values import pause
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.period import Period
from vllm_hitratio_plugin.findings.rules import diagnose, diagnose_fleet
from vllm_hitratio_plugin.findings.without_plugin import without_plugin
from vllm_hitratio_plugin.metrics.fetch import FetchError, fetch
from vllm_hitratio_plugin.metrics.reader import Page
from vllm_hitratio_plugin.snapshot import REUSE_TIME, Snapshot
from vllm_hitratio_plugin.wording import capacity, duration, percent

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
    """None without the plugin."""
    findings: list[Finding]


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
                    "plugin": engine.snapshot is not None,
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
    for url, page in pages.items():
        before = earlier.get(url)
        plain = {} if before is None else {(old.model_name, old.engine): old for old in before.without_plugin}
        for snapshot in page.snapshots:
            key = (snapshot.model_name, snapshot.engine)
            engines.append(EngineReport(url, *key, snapshot, diagnose(snapshot)))
        for counters in page.without_plugin:
            key = (counters.model_name, counters.engine)
            engines.append(EngineReport(url, *key, None, [without_plugin(counters, plain.get(key))]))
    return Diagnosis(engines, diagnose_fleet([engine.snapshot for engine in engines if engine.snapshot is not None]))


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
        name = f"{engine.model_name or 'vLLM'}, engine {engine.engine}, {engine.url}"
        lines = [self._paint("1", name)]
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
        for name, value in (
            ("hit ratio", estimate.observed),
            ("predicted", estimate.predicted.get(REUSE_TIME)),
            ("at most", estimate.ceiling),
        ):
            if value is not None:
                words.append(f"{name} {percent(value)}")
        loaded = Period.of(snapshot).share("hit", "external")
        if loaded:
            words.append(f"another {percent(loaded)} from a second tier")
        words.append(f"{estimate.requests:,} requests in the last {duration(estimate.window_seconds)}")
    words.append(f"{capacity(snapshot.capacity_blocks, snapshot.block_bytes)} of {snapshot.block_size:,} tokens")
    return "; ".join(words)

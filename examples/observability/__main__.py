"""``make demo-observability``: Prometheus and Alertmanager watch a real vLLM and find a fault."""

import argparse
import asyncio
import json
import os
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from examples.demo.errors import DemoError
from examples.demo.interrupts import Interrupted, interruptible
from examples.demo.load import Tally, drive
from examples.demo.progress import Progress
from examples.demo.server import Server, serve
from examples.demo.tiny_model import write_tiny_model
from examples.demo.workload import draw_timetable
from examples.observability import fault
from examples.observability.pages import Answer, ask_again, ask_alerts, ask_everything, graph_address
from examples.observability.stack import Stack, StackError, hurried, running

RULES = Path(__file__).resolve().parents[2] / "grafana" / "prometheus" / "rules.yml"

FAULTS = {
    "forget": ("HitRatioBelowPrediction", "the engine begins to forget blocks"),
    "reset": ("HitRatioCacheReset", "somebody begins to reset the prefix cache repeatedly"),
}
"""What can go wrong: the alert that has to fire, and a description."""

SPEED = 15.0
"""Windows and waits of the rules are divided by this: the long window is four minutes instead of an hour."""

MODEL_NAME = "tiny-qwen3"

WINDOW_SECONDS = 120.0
"""The plugin's window."""

DRIFT_SECONDS = 3 * WINDOW_SECONDS
"""A shorter load has no drift: that compares two windows."""


@dataclass
class Settings:
    """What the command line can change; durations in seconds."""

    output: Path
    fault: str
    healthy: float
    faulty: float
    after: float
    rate: float
    think: float
    capacity: int
    ports: tuple[int, int]

    @property
    def seconds(self) -> float:
        return self.healthy + self.faulty + self.after


@dataclass
class Story:
    """What happened."""

    alerts: list[dict[str, Any]] = field(default_factory=list)
    """Beginnings and ends in order: seconds, "firing" or "resolved", labels, annotations."""
    answers: list[Answer] = field(default_factory=list)
    firing: dict[str, dict[str, Any]] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if the fault was not found or a query returned no data; 2 if something is not installed."""
    settings = _parse(arguments)
    try:
        with interruptible():
            return run(settings)
    except Interrupted as interrupted:
        print(f"\nstopped by {interrupted}; nothing is left running", file=sys.stderr)
        return interrupted.exit_code
    except (DemoError, StackError, ModuleNotFoundError) as error:
        print(f"demo-observability: {error}", file=sys.stderr)
        return 2


def run(settings: Settings) -> int:
    """The whole demonstration."""
    output = settings.output
    output.mkdir(parents=True, exist_ok=True)
    flag = output / "fault-is-on"
    flag.unlink(missing_ok=True)
    if settings.fault == "reset":
        os.environ["VLLM_SERVER_DEV_MODE"] = "1"  # serves /reset_prefix_cache
    else:
        fault.install(output / "fault", flag)
    timetable = draw_timetable(1, settings.seconds, settings.rate, settings.think)
    options = ["--served-model-name", MODEL_NAME, "--plugin", "hitratio", "--hitratio-target", "0.5"]
    with serve(
        write_tiny_model(output / "model"),
        capacity_blocks=settings.capacity,
        log=output / "vllm.log",
        plugin_options=[*options, "--hitratio-interval", "2", "--hitratio-window", f"{WINDOW_SECONDS:g}"],
        hitratio_port=9577,
    ) as server:
        rules = hurried(RULES.read_text(), SPEED)
        with running(
            output / "stack", [f"127.0.0.1:{server.port}"], rules, interval="2s", ports=settings.ports
        ) as stack:
            _say_what_to_open(server, stack, settings)
            story = Story()
            watch = _Watch(settings, server, stack, flag, story)
            asyncio.run(drive(timetable, server.url, MODEL_NAME, watch, 2.0))
            watch.progress.done("  load done")
            story.answers = [ask_again(stack, answer) for answer in story.answers]
            return _report(settings, stack, story)


class _Watch:
    """Switches the fault on and off, reports alerts, and asks all queries just before the fault."""

    def __init__(self, settings: Settings, server: Server, stack: Stack, flag: Path, story: Story) -> None:
        self.settings, self.server, self.stack, self.flag, self.story = settings, server, stack, flag, story
        self.progress = Progress()

    async def __call__(self, now: float, tally: Tally) -> None:
        await asyncio.to_thread(self._look, now)

    def _look(self, now: float) -> None:
        settings, story = self.settings, self.story
        wanted = settings.healthy <= now < settings.healthy + settings.faulty
        if wanted != self.flag.exists():
            self.progress.done(f"  {now:4.0f} s  {FAULTS[settings.fault][1] if wanted else 'all is well again'}")
            if wanted:
                story.answers = [*ask_everything(self.stack, "1m"), *ask_alerts(self.stack)]
                self.flag.touch()
            else:
                self.flag.unlink()
        if wanted and settings.fault == "reset":
            request = urllib.request.Request(f"{self.server.url}/reset_prefix_cache", method="POST")
            with urllib.request.urlopen(request, timeout=30):
                pass
        firing = {alert["fingerprint"]: alert for alert in self.stack.alerts()}
        for word, some in (("firing", firing), ("resolved", story.firing)):
            other = story.firing if word == "firing" else firing
            for fingerprint, alert in some.items():
                if fingerprint not in other:
                    story.alerts.append(
                        {"seconds": round(now, 1), "state": word}
                        | {part: alert[part] for part in ("labels", "annotations")}
                    )
                    labels = alert["labels"]
                    self.progress.done(f"  {now:4.0f} s  {word.upper():<8}  {labels['alertname']}")
                    if word == "firing":
                        self.progress.done(f"            {alert['annotations']['summary']}")
        story.firing = firing
        observed, predicted = (
            self._ratio(f"engine:hitratio_{name}:ratio_rate5m") for name in ("observed", "predicted")
        )
        self.progress.show(f"  {now:4.0f}/{settings.seconds:.0f} s  observed {observed}  predicted {predicted}")

    def _ratio(self, name: str) -> str:
        result = self.stack.query(name)
        return f"{float(result[0]['value'][1]):.3f}" if result else "  -  "


def _say_what_to_open(server: Server, stack: Stack, settings: Settings) -> None:
    minutes, healthy, faulty = settings.seconds / 60, settings.healthy, settings.faulty
    print(
        f"""
  open            {graph_address(stack, minutes)}
  alerts          {stack.prometheus_url}/alerts
  Alertmanager    {stack.alertmanager_url}
  metrics         {server.url}/metrics
  with a Grafana  add {stack.prometheus_url} as a data source, then:
                  .venv/bin/hitratio grafana push --url http://GRAFANA --token TOKEN

  This takes {minutes:.0f} minutes (Ctrl-C ends it). After {healthy:.0f} s, something goes wrong for {faulty:.0f} s.
  The rules are those of grafana/prometheus/rules.yml, on a clock that runs {SPEED:.0f} times as fast.
"""
    )


def _report(settings: Settings, stack: Stack, story: Story) -> int:
    names = [(each["state"], each["labels"]["alertname"]) for each in story.alerts]
    wanted = FAULTS[settings.fault][0]
    absent = ("alert: ",) if settings.seconds >= DRIFT_SECONDS else ("alert: ", "vLLM / Hit ratio: Drift")
    panels = [answer for answer in story.answers if not answer.where.startswith(absent)]
    empty = [answer for answer in panels if not answer.series and not answer.error]
    failed = [answer for answer in story.answers if answer.error]
    began = next(
        (each for each in story.alerts if (each["state"], each["labels"]["alertname"]) == ("firing", wanted)), None
    )
    checks = {
        f"{wanted} fired after the fault": began is not None and began["seconds"] >= settings.healthy,
        "and named the engine": began is not None and began["labels"].get("engine") == "0",
        "and ended when the fault did": ("resolved", wanted) in names,
        "nothing else fired": {name for _, name in names} <= {wanted},
        f"all {len(panels)} queries of panels and rules have data": bool(panels) and not empty,
        "no query failed": not failed,
    }
    for name, passed in checks.items():
        print(f"  {'ok  ' if passed else 'FAIL'}  {name}")
    for answer in (*empty, *failed):
        print(f"        {answer.where}: {answer.error or 'no data'}\n          {answer.expr}")
    report = {
        "checks": checks,
        "alerts": story.alerts,
        "queries": len(story.answers),
        "empty": [asdict(answer) for answer in empty],
        "failed": [asdict(answer) for answer in failed],
        "vllm_names": sorted(
            {
                each["metric"]["__name__"]
                for each in stack.query('{__name__=~"vllm[:_]prefix_cache_(hits|queries)_total"}')
            }
        ),
        "versions": _versions(stack),
        "finished": time.time(),
    }
    path = settings.output / "report.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{path}")
    return 0 if all(checks.values()) else 1


def _versions(stack: Stack) -> dict[str, str]:
    plugin = stack.query("hitratio_build_info")[0]["metric"]
    return {"prometheus": stack.version(), "vllm": plugin["vllm_version"], "plugin": plugin["version"]}


def _parse(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="python -m examples.observability", description=__doc__)
    add = parser.add_argument
    add("--output", type=Path, default=Path("build/observability"), metavar="FOLDER", help="(%(default)s)")
    add("--fault", choices=sorted(FAULTS), default="forget", help="what goes wrong (%(default)s)")
    add("--healthy", type=_positive, default=210.0, metavar="S", help="seconds before the fault (%(default)s)")
    add("--faulty", type=_positive, default=180.0, metavar="S", help="seconds of it (%(default)s)")
    add("--after", type=_positive, default=110.0, metavar="S", help="seconds after it (%(default)s)")
    add("--rate", type=_positive, default=2.5, help="conversations per second (%(default)s)")
    add("--think", type=_positive, default=6.0, help="mean think time, seconds (%(default)s)")
    add("--capacity", type=int, default=850, help="blocks (%(default)s)")
    add("--prometheus-port", type=int, default=9090, help="0: any (%(default)s)")
    add("--alertmanager-port", type=int, default=9093, help="0: any (%(default)s)")
    options = parser.parse_args(arguments)
    return Settings(
        output=options.output,
        fault=options.fault,
        healthy=options.healthy,
        faulty=options.faulty,
        after=options.after,
        rate=options.rate,
        think=options.think,
        capacity=options.capacity,
        ports=(options.prometheus_port, options.alertmanager_port),
    )


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


if __name__ == "__main__":
    sys.exit(main())

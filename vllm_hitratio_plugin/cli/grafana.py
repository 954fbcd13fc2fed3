"""``hitratio grafana``: dashboards and alerts into a running Grafana, or as files."""

import argparse
import os
from pathlib import Path

from vllm_hitratio_plugin.cli.errors import UsageError, usage
from vllm_hitratio_plugin.dashboards.links import GRAFANA_BASE, RUNBOOK_BASE, Links


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    push = actions.add_parser(
        "push",
        help="into a running Grafana, over HTTP",
        description="Push dashboards and alert rules to Grafana 10.4+.",
    )
    push.add_argument("--url", help="address of Grafana (default: $GRAFANA_URL)")
    push.add_argument("--token", help="of a service account (default: $GRAFANA_TOKEN, which other users cannot see)")
    push.add_argument(
        "--datasource-uid", metavar="UID", help="the Prometheus of the alerts (default: Grafana's default)"
    )
    push.add_argument("--no-alerts", action="store_true", help="dashboards only")
    push.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    push.add_argument("--runbook-base", metavar="URL", default=RUNBOOK_BASE, help="where docs/runbooks/ is published")
    push.set_defaults(run=run)
    write = actions.add_parser(
        "write", help="as files", description="Write dashboards, rules and Kubernetes manifests as files."
    )
    write.add_argument("folder", type=Path, help="where to")
    write.add_argument("--runbook-base", metavar="URL", default=RUNBOOK_BASE, help="where docs/runbooks/ is published")
    write.add_argument("--grafana-base", metavar="URL", default=GRAFANA_BASE, help="the Grafana that alerts link to")
    write.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it, one line a thing."""
    return _push(options) if options.action == "push" else _write(options)


def _push(options: argparse.Namespace) -> int:
    from vllm_hitratio_plugin.dashboards.push import PushError, push

    url = options.url or os.environ.get("GRAFANA_URL")
    token = options.token or os.environ.get("GRAFANA_TOKEN")
    if not url:
        raise UsageError("no address of Grafana: give --url or set GRAFANA_URL")
    if not token:
        raise UsageError("no token: give --token or set GRAFANA_TOKEN")
    with usage(PushError):
        for step in push(
            url,
            token,
            links=Links(options.runbook_base),
            data_source=options.datasource_uid,
            with_alerts=not options.no_alerts,
            dry_run=options.dry_run,
        ):
            outcome = f"would be {step.outcome}" if options.dry_run and step.outcome != "unchanged" else step.outcome
            print(f"{step.kind:<10}  {step.name:<34}  {outcome}", flush=True)
    return 0


def _write(options: argparse.Namespace) -> int:
    from vllm_hitratio_plugin.dashboards.generate import write

    for path in write(options.folder, Links(options.runbook_base, options.grafana_base)):
        print(path)
    return 0

"""``hitratio grafana``: dashboards and alerts into a running Grafana, or as files."""

import argparse
import os
from pathlib import Path

from vllm_hitratio_plugin.cli.errors import UsageError, usage
from vllm_hitratio_plugin.grafana.files import write
from vllm_hitratio_plugin.grafana.links import GRAFANA_BASE, RUNBOOK_BASE


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    push = actions.add_parser(
        "push",
        help="into a running Grafana, over HTTP",
        description="Push dashboards and alert rules to Grafana 10.4 or newer.",
    )
    push.add_argument("--url", help="address of Grafana (default: $GRAFANA_URL)")
    push.add_argument(
        "--token", help="of a service account (default: $GRAFANA_TOKEN, which keeps it out of the process list)"
    )
    push.add_argument(
        "--datasource-uid", metavar="UID", help="the Prometheus of the alerts (default: Grafana's default one)"
    )
    push.add_argument("--no-alerts", action="store_true", help="dashboards only")
    push.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    push.set_defaults(run=_push)
    files = actions.add_parser(
        "write", help="as files", description="Write dashboards, rules and Kubernetes manifests as files."
    )
    files.add_argument("folder", type=Path, help="target folder")
    files.add_argument("--grafana-base", metavar="URL", default=GRAFANA_BASE, help="the Grafana that alerts link to")
    files.set_defaults(run=_write)
    for action in (push, files):
        action.add_argument(
            "--runbook-base", metavar="URL", default=RUNBOOK_BASE, help="where docs/runbooks/ is published"
        )


def _push(options: argparse.Namespace) -> int:
    from vllm_hitratio_plugin.grafana.push import PushError, push

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
            runbooks=options.runbook_base,
            data_source=options.datasource_uid,
            with_alerts=not options.no_alerts,
            dry_run=options.dry_run,
        ):
            outcome = f"would be {step.outcome}" if options.dry_run and step.outcome != "unchanged" else step.outcome
            print(f"{step.kind:<10}  {step.name:<34}  {outcome}", flush=True)
    return 0


def _write(options: argparse.Namespace) -> int:
    for path in write(options.folder, options.runbook_base, options.grafana_base):
        print(path)
    return 0

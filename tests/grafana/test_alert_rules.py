"""Rules and queries under promtool."""

import json
import re
import subprocess
from pathlib import Path

from grafana_queries import PAGES, queries

from vllm_hitratio_plugin.dashboards.alerts import alerts, inlined
from vllm_hitratio_plugin.dashboards.recording import recordings

FOLDER = Path(__file__).resolve().parents[2] / "grafana" / "prometheus"


def run(*command: str | Path) -> str:
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_pass_every_lint(promtool: str) -> None:
    said = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", FOLDER / "rules.yml")
    assert f"{len(recordings()) + len(alerts())} rules found" in said


def test_alerts_fire_when_they_should_and_only_then(promtool: str) -> None:
    said = run(promtool, "test", "rules", FOLDER / "rules_test.yml")
    assert "SUCCESS" in said


def test_the_example_configuration_is_valid(promtool: str) -> None:
    assert "SUCCESS" in run(promtool, "check", "config", FOLDER / "prometheus.yml")


def test_every_query_is_promql(promtool: str, tmp_path: Path) -> None:
    found = [
        *(each for page in PAGES for each in queries(page)),
        *(
            (path.name, query)
            for path in (FOLDER.parents[1] / "docs" / "runbooks").glob("*.md")
            for query in re.findall(r"```promql\n(.*?)```", path.read_text(), re.DOTALL)
        ),
        *((f"Grafana: {alert.name}", inlined(alert.expr)) for alert in alerts()),
    ]
    rules = [{"record": f"query:{number}", "expr": expr} for number, (_, expr) in enumerate(found)]
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(found)} rules found" in run(promtool, "check", "rules", path)

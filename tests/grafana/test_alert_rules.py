"""Rules and queries under promtool."""

import json
import subprocess
from pathlib import Path

from tests.grafana.grafana_queries import ALERTS, GRAFANA, GRAFANA_ALERTS, PAGES, RECORDED, queries, runbook_queries

FOLDER = GRAFANA / "prometheus"


def run(*command: str | Path) -> str:
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_pass_every_lint(promtool: str) -> None:
    said = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", FOLDER / "rules.yml")
    assert f"{len(RECORDED) + len(ALERTS)} rules found" in said


def test_alerts_fire_when_they_should_and_only_then(promtool: str) -> None:
    said = run(promtool, "test", "rules", FOLDER / "rules_test.yml")
    assert "SUCCESS" in said


def test_the_example_configuration_is_valid(promtool: str) -> None:
    assert "SUCCESS" in run(promtool, "check", "config", FOLDER / "prometheus.yml")


def test_every_query_is_promql(promtool: str, tmp_path: Path) -> None:
    found = [
        *(each for page in PAGES for each in queries(page)),
        *runbook_queries(),
        *((f"Grafana: {rule['title']}", rule["data"][0]["model"]["expr"]) for rule in GRAFANA_ALERTS),
    ]
    rules = [{"record": f"query:{number}", "expr": expr} for number, (_, expr) in enumerate(found)]
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(found)} rules found" in run(promtool, "check", "rules", path)

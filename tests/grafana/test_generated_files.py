"""The committed files are what the source gives, and mean what they should."""

import json
import re
from pathlib import Path

import pytest
import yaml
from rule_scenarios import FILE, rules_test

from vllm_hitratio_plugin.dashboards import kubernetes
from vllm_hitratio_plugin.dashboards.alerts import alerts, inlined
from vllm_hitratio_plugin.dashboards.dashboard import Dashboard
from vllm_hitratio_plugin.dashboards.generate import files, main
from vllm_hitratio_plugin.dashboards.grafana_alerts import provisioning, uid
from vllm_hitratio_plugin.dashboards.links import Links
from vllm_hitratio_plugin.dashboards.prometheus import groups
from vllm_hitratio_plugin.dashboards.promql import recorded_in
from vllm_hitratio_plugin.dashboards.recording import recordings
from vllm_hitratio_plugin.dashboards.yaml_text import document

ROOT = Path(__file__).resolve().parents[2]
GRAFANA = ROOT / "grafana"


def test_committed_files_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(GRAFANA), "--check"]) == 0, capsys.readouterr().err


def test_rules_test_is_fresh() -> None:
    assert FILE.read_text(encoding="utf-8") == rules_test(), f"run python {Path(__file__).parent}/rule_scenarios.py"


def test_check_finds_missing_changed_and_foreign_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path)]) == 0
    assert main(["--out", str(tmp_path), "--check"]) == 0
    (tmp_path / "dashboards" / "fleet.json").unlink()
    (tmp_path / "prometheus" / "rules.yml").write_text("groups: []\n")
    (tmp_path / "dashboards" / "mine.json").write_text("{}")
    assert main(["--out", str(tmp_path), "--check"]) == 1
    said = capsys.readouterr().err
    assert "fleet.json: missing" in said
    assert "rules.yml: not what the source gives" in said
    assert "mine.json: not generated" in said


def test_yaml_says_what_the_source_says() -> None:
    content = files(Links())
    assert yaml.safe_load(content["prometheus/rules.yml"]) == {"groups": groups(Links())}
    assert yaml.safe_load(content["alerting/hitratio.yaml"]) == provisioning(Links())
    assert yaml.safe_load(content["kubernetes/prometheusrule.yaml"]) == kubernetes.prometheus_rule(Links())


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "yes", "no", "5m", "1e3", "0", "x: y", "# no comment", "it's", "", " "]},
        {"text": "one\ntwo\n", "block": "one\n  two", "empty": {}, "none": [], "nested": [[1], [{"b": ["c"]}]]},
        [{"a": {"b": "multi\nline"}}, "plain", "multi\nline"],
    ],
)
def test_yaml_text_reads_back(value: object) -> None:
    assert yaml.safe_load(document(value, "header\nof two lines")) == value


def test_kubernetes_manifests_carry_the_same_dashboards_and_rules() -> None:
    folder = GRAFANA / "kubernetes"
    maps = list(yaml.safe_load_all((folder / "configmaps.yaml").read_text()))
    for name, manifest in zip(("overview", "fleet"), maps, strict=True):
        assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
        [text] = manifest["data"].values()
        assert text == (GRAFANA / "dashboards" / f"{name}.json").read_text()
        assert len(text) < 1 << 20, "a ConfigMap holds 1 MiB"
    operator = list(yaml.safe_load_all((folder / "grafanadashboards.yaml").read_text()))
    assert [each["spec"]["configMapRef"]["name"] for each in operator] == [each["metadata"]["name"] for each in maps]
    rule = yaml.safe_load((folder / "prometheusrule.yaml").read_text())
    assert rule["spec"]["groups"] == yaml.safe_load((GRAFANA / "prometheus" / "rules.yml").read_text())["groups"]
    for kind, endpoints in (("podmonitor", "podMetricsEndpoints"), ("servicemonitor", "endpoints")):
        monitor = yaml.safe_load((folder / f"{kind}.yaml").read_text())
        assert monitor["kind"].lower() == kind
        assert monitor["spec"][endpoints][0]["path"] == "/metrics"


def test_provisioning_of_this_repository_fits_together() -> None:
    source = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())
    rules = yaml.safe_load((GRAFANA / "alerting" / "hitratio.yaml").read_text())
    named = {query["datasourceUid"] for rule in rules["groups"][0]["rules"] for query in rule["data"]}
    assert named == {source["datasources"][0]["uid"], "__expr__"}
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "hitratio.yaml").read_text())["providers"][0]
    assert provider["folder"] == rules["groups"][0]["folder"]
    compose = yaml.safe_load((GRAFANA / "compose.yaml").read_text())
    mounts = [mount.split(":") for service in compose["services"].values() for mount in service["volumes"]]
    assert all((GRAFANA / host).exists() for host, *_ in mounts)
    assert provider["options"]["path"] in [inside for _, inside, *_ in mounts]


def test_grafana_rules_are_the_same_alerts() -> None:
    [group] = provisioning(Links())["groups"]
    for alert, rule in zip(alerts(), group["rules"], strict=True):
        assert rule["title"] == alert.name
        assert rule["for"] == alert.wait
        assert rule["labels"]["severity"] == alert.severity
        assert rule["annotations"]["summary"] == alert.summary
        assert rule["data"][0]["model"]["expr"] == inlined(alert.expr)
        # They run where Prometheus has no rules of ours, and Grafana's templates name the value otherwise.
        assert recorded_in(rule["data"][0]["model"]["expr"]) == []
        assert "$value " not in rule["annotations"]["description"]
        assert len(rule["uid"]) <= 40
        # Provisioning replaces $NAME in queries by variables of the environment.
        assert "$" not in rule["data"][0]["model"]["expr"]


def test_grafana_rules_point_to_panels_that_exist() -> None:
    pages = {
        page["uid"]: page for page in (json.loads(path.read_text()) for path in (GRAFANA / "dashboards").iterdir())
    }
    for rule in provisioning(Links())["groups"][0]["rules"]:
        panels = pages[rule["annotations"]["__dashboardUid__"]]["panels"]
        numbers = [each["id"] for panel in panels for each in (panel, *panel.get("panels", ()))]
        assert int(rule["annotations"]["__panelId__"]) in numbers


def test_identities_are_stable() -> None:
    assert [uid(alert) for alert in alerts()][:2] == ["hitratio-below-prediction", "hitratio-above-prediction"]
    assert len({uid(alert) for alert in alerts()}) == len(alerts())


def test_addresses_change_in_one_place() -> None:
    content = files(Links("https://wiki.test/runbooks", "https://graphs.test"))
    everything = "".join(content.values())
    assert "example.com/hitratio" not in everything
    assert "grafana.example.com" not in everything
    assert everything.count("https://wiki.test/runbooks/HitRatio") == 3 * len(alerts())
    assert everything.count("https://graphs.test/d/hitratio-") == 2 * len(alerts())


def test_alerts_read_recorded_series_that_are_recorded() -> None:
    names = {rule.name for rule in recordings()}
    for alert in alerts():
        assert set(recorded_in(alert.expr)) <= names


def test_every_alert_has_a_runbook_of_four_parts() -> None:
    folder = ROOT / "docs" / "runbooks"
    assert {path.stem for path in folder.glob("HitRatio*.md")} == {alert.name for alert in alerts()}
    for alert in alerts():
        text = (folder / f"{alert.name}.md").read_text()
        assert text.startswith(f"# {alert.name}\n")
        parts = re.findall(r"(?m)^## (.+)$", text)
        assert parts == ["Meaning", "Impact", "Diagnosis", "Mitigation"], alert.name
        diagnosis = text.split("## Diagnosis")[1].split("## Mitigation")[0]
        assert "```promql" in diagnosis, f"{alert.name}: no query"


def test_panels_are_numbered_and_placed(page: Dashboard) -> None:
    json_page = page.json()
    panels = [each for panel in json_page["panels"] for each in (panel, *panel.get("panels", ()))]
    numbers = [panel["id"] for panel in panels]
    assert len(set(numbers)) == len(numbers)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & mine, panel["title"]
        cells |= mine

"""The committed files are what the generators give, and mean what they should."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.grafana.grafana_queries import ALERTS, GRAFANA, GRAFANA_ALERTS, PAGES, RECORDED, ROOT, RUNBOOKS, Json, panels
from tests.grafana.rule_scenarios import FILE, rules_test
from tools.dashboards import thresholds
from tools.dashboards.descriptions import descriptions
from tools.dashboards.metrics import recorded_in
from tools.dashboards.recording import inlined
from tools.dashboards.yaml_text import documents
from vllm_hitratio_plugin.grafana import files
from vllm_hitratio_plugin.grafana.names import DATA_SOURCE_UID, FOLDER_TITLE, FOLDER_UID


def test_committed_files_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--out", str(GRAFANA), "--check") == 0, capsys.readouterr().err


def generate(*arguments: str) -> int:
    pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk needs Python 3.11")
    from tools.dashboards.__main__ import main

    return main(arguments)


def test_rules_test_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == rules_test(), "run python -m tests.grafana.rule_scenarios"


def test_check_finds_missing_changed_and_foreign_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--out", str(tmp_path)) == 0
    assert generate("--out", str(tmp_path), "--check") == 0
    (tmp_path / "dashboards" / "fleet.json").unlink()
    (tmp_path / "prometheus" / "rules.yml").write_text("groups: []\n")
    (tmp_path / "dashboards" / "mine.json").write_text("{}")
    assert generate("--out", str(tmp_path), "--check") == 1
    said = capsys.readouterr().err
    assert "fleet.json: missing" in said
    assert "rules.yml: out of date" in said
    assert "mine.json: not generated" in said


def test_yaml_reads_back_and_is_readable() -> None:
    shared = {"b": ["x: y", "# no comment", "it's", "", "5m", "yes", 1, 2.5, None]}
    values = [{"text": "one\ntwo\n", "block": "one\n  two: λ", "again": [shared, shared]}, {"long": "words " * 50}]
    text = documents("header\nof two lines", *values)
    assert list(yaml.safe_load_all(text)) == values
    assert text.startswith("# header\n# of two lines\ntext: |\n  one\n  two\n")
    assert "&" not in text, "no references"
    assert max(map(len, text.splitlines())) > 300, "not folded"


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
    assert {each["spec"]["folder"] for each in operator} == {FOLDER_TITLE}
    rule = yaml.safe_load((folder / "prometheusrule.yaml").read_text())
    assert rule["spec"]["groups"] == yaml.safe_load((GRAFANA / "prometheus" / "rules.yml").read_text())["groups"]
    relabelings, labels = [], [rule["metadata"]["labels"]]
    for kind, endpoints in (("podmonitor", "podMetricsEndpoints"), ("servicemonitor", "endpoints")):
        monitor = yaml.safe_load((folder / f"{kind}.yaml").read_text())
        assert monitor["kind"].lower() == kind
        assert monitor["spec"][endpoints][0]["path"] == "/metrics"
        relabelings.append(monitor["spec"][endpoints][0]["metricRelabelings"])
        labels.append(monitor["metadata"]["labels"])
    values = yaml.safe_load((folder / "production-stack-values.yaml").read_text())
    relabelings.append(values["servingEngineSpec"]["serviceMonitor"]["metricRelabelings"])
    assert values["grafanaDashboards"]["annotations"]["grafana_folder"] == FOLDER_TITLE
    assert all(each == relabelings[0] for each in relabelings)
    assert all(each == labels[0] for each in labels)


def test_provisioning_of_this_repository_fits_together() -> None:
    source = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())
    rules = yaml.safe_load((GRAFANA / "alerting" / "hitratio.yaml").read_text())
    named = {query["datasourceUid"] for rule in GRAFANA_ALERTS for query in rule["data"]}
    assert named == {source["datasources"][0]["uid"], "__expr__"} == {DATA_SOURCE_UID, "__expr__"}
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "hitratio.yaml").read_text())["providers"][0]
    assert provider["folder"] == rules["groups"][0]["folder"] == FOLDER_TITLE
    assert provider["folderUid"] == FOLDER_UID
    compose = yaml.safe_load((GRAFANA / "compose.yaml").read_text())
    mounts = [mount.split(":") for service in compose["services"].values() for mount in service["volumes"]]
    assert all((GRAFANA / host).exists() for host, *_ in mounts)
    assert provider["options"]["path"] in [inside for _, inside, *_ in mounts]


def test_grafana_rules_are_the_same_alerts() -> None:
    for alert, rule in zip(ALERTS, GRAFANA_ALERTS, strict=True):
        assert rule["title"] == alert["alert"]
        assert rule["for"] == alert["for"]
        assert rule["labels"] == alert["labels"]
        for name in ("summary", "runbook_url"):
            assert rule["annotations"][name] == alert["annotations"][name]
        query, condition = rule["data"]
        assert query["model"]["expr"] == inlined(alert["expr"])
        assert rule["condition"] == condition["refId"]
        # They run where Prometheus has no rules of ours, and Grafana's templates spell the value differently.
        assert recorded_in(query["model"]["expr"]) == []
        assert "$value " not in rule["annotations"]["description"]
        assert len(rule["uid"]) <= 40
        # Provisioning replaces $NAME in queries by variables of the environment.
        assert "$" not in query["model"]["expr"]


def test_grafana_rules_point_to_panels_that_exist() -> None:
    pages = {page["uid"]: page for page in PAGES}
    for rule in GRAFANA_ALERTS:
        numbers = [panel["id"] for panel in panels(pages[rule["annotations"]["__dashboardUid__"]])]
        assert int(rule["annotations"]["__panelId__"]) in numbers


def test_identities_are_stable() -> None:
    uids = [rule["uid"] for rule in GRAFANA_ALERTS]
    assert uids[:2] == ["hitratio-below-prediction", "hitratio-above-prediction"]
    assert len(set(uids)) == len(ALERTS) == 11


def test_addresses_change_in_one_place() -> None:
    content = files.texts("https://wiki.test/runbooks/", "https://graphs.test")
    everything = "".join(content.values())
    assert "example.com/hitratio" not in everything
    assert "grafana.example.com" not in everything
    assert everything.count("https://wiki.test/runbooks/HitRatio") == 3 * len(ALERTS)
    assert everything.count("https://graphs.test/d/hitratio-") == 2 * len(ALERTS)


def test_alerts_read_recorded_series_that_are_recorded() -> None:
    for alert in ALERTS:
        assert set(recorded_in(alert["expr"])) <= set(RECORDED)


def test_every_alert_has_a_runbook_of_four_parts() -> None:
    names = {alert["alert"] for alert in ALERTS}
    assert {path.stem for path in RUNBOOKS.glob("HitRatio*.md")} == names
    for name in names:
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        parts = re.findall(r"(?m)^## (.+)$", text)
        assert parts == ["Meaning", "Impact", "Diagnosis", "Mitigation"], name
        diagnosis = text.split("## Diagnosis")[1].split("## Mitigation")[0]
        assert "```promql" in diagnosis, f"{name}: no query"


def test_panels_are_numbered_and_placed(page: Json) -> None:
    every = [each for panel in page["panels"] for each in (panel, *panel.get("panels", ()))]
    numbers = [panel["id"] for panel in every]
    assert len(set(numbers)) == len(numbers)
    cells: set[tuple[int, int]] = set()
    for panel in every:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & mine, panel["title"]
        cells |= mine


def test_docs_describe_exactly_the_panels(page: Json) -> None:
    assert list(descriptions(page["title"])) == [panel["title"] for panel in panels(page)]


def test_descriptions_name_the_thresholds_of_the_alerts() -> None:
    text = (ROOT / "docs" / "dashboards.md").read_text()
    percent = {float(number) for number in re.findall(r"[-+±](\d+)%", text)}
    assert percent == {100 * thresholds.DIVERGENCE}
    assert set(re.findall(r"(\d+) s\b", text)) == {f"{thresholds.STALE_SECONDS:.0f}"}
    assert set(re.findall(r"± (\d+) standard errors", text)) == {str(thresholds.SIGMAS)}


def test_the_package_carries_what_is_installed() -> None:
    names = set(files.texts())
    assert {
        "dashboards/overview.json",
        "dashboards/fleet.json",
        "alerting/hitratio.yaml",
        "prometheus/rules.yml",
    } < names
    assert {f"kubernetes/{path.name}" for path in (GRAFANA / "kubernetes").iterdir()} < names
    assert json.loads(files.texts()["dashboards/fleet.json"]) == PAGES[1]
    build = (ROOT / "pyproject.toml").read_text()
    assert [pattern for pattern in files.PATTERNS if f'"generated/{pattern}"' not in build] == [], "not in the wheel"

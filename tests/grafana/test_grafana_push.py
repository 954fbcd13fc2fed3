"""``hitratio grafana push`` against a recorder of Grafana's HTTP API."""

import argparse
import builtins
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.grafana.grafana_queries import ALERTS, PAGES
from tests.grafana.grafana_recorder import TOKEN, Recorder, recording

pytest.importorskip("grafana_api", reason="grafana-api is not installed (pip install 'vllm-hitratio-plugin[grafana]')")

from vllm_hitratio_plugin.cli import grafana, main
from vllm_hitratio_plugin.cli.errors import UsageError
from vllm_hitratio_plugin.grafana.names import FOLDER_TITLE, FOLDER_UID

THINGS = 1 + 2 + len(ALERTS)


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recording() as recorder:
        yield recorder


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAFANA_URL", raising=False)
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    grafana.configure(parser)
    options = parser.parse_args(arguments)
    return int(options.run(options))


def push(server: Recorder, *more: str, token: str = TOKEN, url: str | None = None) -> int:
    return run("push", "--url", url or server.url, "--token", token, *more)


def refusal(server: Recorder, *more: str, **how: str) -> str:
    with pytest.raises(UsageError) as caught:
        push(server, *more, **how)
    return str(caught.value)


def outcomes(text: str) -> list[str]:
    return [line.split("  ")[-1].strip() for line in text.splitlines()]


def test_first_push_creates_everything(server: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert push(server) == 0
    assert outcomes(capsys.readouterr().out) == ["created"] * THINGS
    assert server.folders[FOLDER_UID]["title"] == FOLDER_TITLE
    assert set(server.dashboards) == {"hitratio-overview", "hitratio-fleet"}
    assert all(each["meta"]["folderUid"] == FOLDER_UID for each in server.dashboards.values())
    assert {rule["title"] for rule in server.rules.values()} == {alert["alert"] for alert in ALERTS}
    # The first Prometheus of several, not the default data source, which is another kind.
    assert {rule["data"][0]["datasourceUid"] for rule in server.rules.values()} == {"prom-a"}
    sent = [headers for method, path, _, headers in server.requests if method == "POST" and "alert-rules" in path]
    assert all(headers["X-Disable-Provenance"] == "true" for headers in sent)


def test_second_push_changes_nothing(server: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    push(server)
    before = len(server.writes)
    capsys.readouterr()
    assert push(server) == 0
    assert outcomes(capsys.readouterr().out) == ["unchanged"] * THINGS
    assert len(server.writes) == before


def test_push_repairs_what_was_changed(server: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    push(server)
    server.dashboards["hitratio-fleet"]["dashboard"]["title"] = "Mine"
    server.dashboards["hitratio-overview"]["meta"]["folderUid"] = "elsewhere"
    server.folders[FOLDER_UID]["title"] = "Mine"
    server.rules["hitratio-cache-reset"]["for"] = "1h"
    del server.rules["hitratio-model-stale"]
    capsys.readouterr()
    assert push(server) == 0
    changed = sorted(each for each in outcomes(capsys.readouterr().out) if each != "unchanged")
    assert changed == ["created", "updated", "updated", "updated", "updated"]
    assert server.dashboards["hitratio-fleet"]["dashboard"]["version"] == 2
    assert server.rules["hitratio-cache-reset"]["for"] == "0s"
    capsys.readouterr()
    push(server)
    assert outcomes(capsys.readouterr().out) == ["unchanged"] * THINGS


def test_dry_run_only_reads(server: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert push(server, "--dry-run") == 0
    assert outcomes(capsys.readouterr().out) == ["would be created"] * THINGS
    assert server.writes == []


def test_dashboards_without_alerts(server: Recorder) -> None:
    assert push(server, "--no-alerts") == 0
    assert server.rules == {}
    assert len(server.dashboards) == 2


def test_data_source_and_runbooks_can_be_named(server: Recorder) -> None:
    assert push(server, "--datasource-uid", "mine", "--runbook-base", "https://wiki.test") == 0
    rule = server.rules["hitratio-below-prediction"]
    assert rule["data"][0]["datasourceUid"] == "mine"
    assert rule["annotations"]["runbook_url"] == "https://wiki.test/HitRatioBelowPrediction.md"


def test_below_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    with recording("/monitoring/grafana") as server:
        assert push(server, url=server.url + "/") == 0
        assert len(server.dashboards) == 2


def test_address_and_token_from_the_environment(server: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_URL", server.url)
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    assert run("push") == 0


def test_nothing_given() -> None:
    with pytest.raises(UsageError, match="give --url or set GRAFANA_URL"):
        run("push")
    with pytest.raises(UsageError, match="give --token or set GRAFANA_TOKEN"):
        run("push", "--url", "http://x")


def test_wrong_token(server: Recorder) -> None:
    said = refusal(server, token="wrong")
    assert "does not accept the token (401)" in said
    assert "wrong" not in said, "no token in messages"
    assert server.writes == []


def test_token_without_rights(server: Recorder) -> None:
    server.fixed["POST", "/api/folders"] = (403, {"message": "access denied"})
    assert "may not create the folder (403) (access denied)" in refusal(server)


def test_not_grafana_at_this_path(server: Recorder) -> None:
    assert "is not there" in refusal(server, url=server.url + "/grafana")


def test_not_grafana_at_all(server: Recorder) -> None:
    server.fixed["GET", "/api/health"] = (200, b"<html>hello</html>")
    assert "does not answer as Grafana does" in refusal(server)
    server.fixed["GET", "/api/health"] = (200, {"status": "ok"})
    assert "does not answer as Grafana does" in refusal(server)


def test_unreachable(server: Recorder) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said = refusal(server, url=f"http://127.0.0.1:{port}")
    assert "cannot be reached" in said
    assert "refused" in said
    assert "object at 0x" not in said


@pytest.mark.parametrize("version", ["9.5.21", "10.3.9", "7.0.0-beta1"])
def test_too_old(server: Recorder, version: str) -> None:
    server.health["version"] = version
    said = refusal(server)
    assert version in said
    assert "10.4 or newer" in said
    assert server.writes == []


@pytest.mark.parametrize("version", ["10.4.0", "11.6.0+security-01", "13.2.0-pre", None])
def test_new_enough_or_hidden(server: Recorder, version: str | None) -> None:
    if version is None:
        del server.health["version"]
    else:
        server.health["version"] = version
    assert push(server) == 0


def test_unhealthy(server: Recorder) -> None:
    server.fixed["GET", "/api/health"] = (503, {"database": "failing"})
    assert "503" in refusal(server)


def test_redirect_is_named(server: Recorder) -> None:
    # A redirected POST would become a GET: better to have the right address at once.
    with recording() as other:
        server.fixed["GET", "/api/health"] = (302, {"to": f"{other.url}/api/health"})
        assert f"redirects to {other.url}" in refusal(server)


def test_redirect_to_a_login_page_is_no_grafana_api(server: Recorder) -> None:
    server.fixed["GET", "/api/health"] = (302, {"to": f"{server.url}/login"})
    server.fixed["GET", "/login"] = (200, b"<html>log in</html>")
    assert "is not there" in refusal(server)


def test_grafana_without_the_alerting_api(server: Recorder) -> None:
    server.fixed["POST", "/api/v1/provisioning/alert-rules"] = (404, {"message": "Not found"})
    assert "does not know how to save alert rule HitRatioBelowPrediction (404)" in refusal(server)


def test_no_prometheus(server: Recorder) -> None:
    server.sources = [{"uid": "logs", "type": "loki"}]
    assert "no Prometheus data source" in refusal(server)


def test_provisioned_dashboard_is_left_alone(server: Recorder) -> None:
    server.dashboards["hitratio-overview"] = {"dashboard": PAGES[0], "meta": {"provisioned": True}}
    assert "is provisioned from a file" in refusal(server)


@pytest.mark.parametrize("url", ["grafana.example.com", "ftp://x", "http://", "http://h/?orgId=1"])
def test_bad_address(server: Recorder, url: str) -> None:
    assert "is not an address such as" in refusal(server, url=url)


def test_bad_token(server: Recorder) -> None:
    assert "token is empty or has spaces" in refusal(server, token="a b")


def test_library_missing(server: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("grafana_api"):
            raise ModuleNotFoundError("No module named 'grafana_api'", name="grafana_api")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'vllm-hitratio-plugin[grafana]'" in refusal(server)


def test_write_files(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("write", str(tmp_path), "--runbook-base", "https://wiki.test") == 0
    assert (tmp_path / "dashboards" / "overview.json").exists()
    assert "https://wiki.test/HitRatioModelStale.md" in (tmp_path / "prometheus" / "rules.yml").read_text()


def test_a_refusal_is_one_sentence_and_exit_code_2(server: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grafana", "push", "--url", server.url, "--token", "wrong"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"hitratio grafana: {server.url} does not accept the token (401)")
    assert said.err.count("\n") == 1


def test_the_command_succeeds(server: Recorder) -> None:
    assert main(["grafana", "push", "--url", server.url, "--token", TOKEN]) == 0

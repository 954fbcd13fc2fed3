"""Puts folder, dashboards and alert rules into a running Grafana over its HTTP API; a second push changes nothing.

The client is grafana-api (the extra ``vllm-hitratio-plugin[grafana]``). It has calls for folders, dashboards and data
sources; alert rules go through its session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from vllm_hitratio_plugin.grafana.files import texts
from vllm_hitratio_plugin.grafana.links import RUNBOOK_BASE
from vllm_hitratio_plugin.grafana.names import DATA_SOURCE_UID, FOLDER_TITLE, FOLDER_UID

Json = dict[str, Any]

#: The oldest Grafana that shows the dashboards correctly.
OLDEST = (10, 4)

_TIMEOUT_S = 15.0
_RULES = "/v1/provisioning/alert-rules"

#: Rules stay editable in Grafana.
_EDITABLE = {"X-Disable-Provenance": "true"}


class PushError(Exception):
    """Grafana cannot be pushed to; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Step:
    """What was done to one folder, dashboard or rule, or what would be done in a dry run."""

    kind: str
    name: str
    outcome: str
    """"created", "updated" or "unchanged"."""


def push(
    url: str,
    token: str,
    *,
    runbooks: str = RUNBOOK_BASE,
    data_source: str | None = None,
    with_alerts: bool = True,
    dry_run: bool = False,
) -> Iterator[Step]:
    """Make Grafana's folder, dashboards and alert rules those of this package, one step at a time.

    Args:
        url: Address of Grafana, with its sub-path if it has one.
        token: Of a service account that may write folders, dashboards and alert rules.
        runbooks: Where the runbooks are published.
        data_source: uid of the Prometheus that alert rules query; None: Grafana's default one.
        with_alerts: Whether to push alert rules.
        dry_run: Change nothing.

    Raises:
        PushError: At the first thing that Grafana refuses.
    """
    grafana = _Grafana(url, token)
    grafana.check_version()
    yield _folder(grafana, dry_run)
    files = texts(runbooks)
    for dashboard in (json.loads(text) for name, text in files.items() if name.startswith("dashboards/")):
        yield _dashboard(grafana, dashboard, dry_run)
    if with_alerts:
        uid = data_source or grafana.prometheus()
        for rule in _rules(grafana.read_yaml(files["alerting/hitratio.yaml"]), uid):
            yield _rule(grafana, rule, dry_run)


def _rules(provisioning: Json, data_source: str) -> list[Json]:
    """The rules of a provisioning file as the HTTP API takes them."""
    [group] = provisioning["groups"]
    rules: list[Json] = []
    for rule in group["rules"]:
        for query in rule["data"]:
            if query["datasourceUid"] == DATA_SOURCE_UID:
                query["datasourceUid"] = data_source
        rules.append({**rule, "orgID": group["orgId"], "folderUID": FOLDER_UID, "ruleGroup": group["name"]})
    return rules


def _folder(grafana: _Grafana, dry_run: bool) -> Step:
    folders = grafana.face.folder
    found = grafana.find("read folders", lambda: folders.get_folder(FOLDER_UID))
    if found is None:
        if not dry_run:
            grafana.do("create the folder", lambda: folders.create_folder(FOLDER_TITLE, FOLDER_UID))
        return Step("folder", FOLDER_TITLE, "created")
    if found.get("title") == FOLDER_TITLE:
        return Step("folder", FOLDER_TITLE, "unchanged")
    if not dry_run:
        grafana.do("rename the folder", lambda: folders.update_folder(FOLDER_UID, FOLDER_TITLE, overwrite=True))
    return Step("folder", FOLDER_TITLE, "updated")


def _dashboard(grafana: _Grafana, wanted: Json, dry_run: bool) -> Step:
    title = wanted["title"]
    found = grafana.find("read dashboards", lambda: grafana.face.dashboard.get_dashboard(wanted["uid"]))
    if found is not None:
        there, meta = dict(found.get("dashboard", {})), found.get("meta", {})
        if meta.get("provisioned"):
            raise PushError(f"{title} is provisioned from a file in Grafana; update that file, or remove it first")
        # Grafana's own numbers, of its database and of its history.
        ours = {**wanted, "id": there.get("id"), "version": there.get("version")}
        if there == ours and meta.get("folderUid") == FOLDER_UID:
            return Step("dashboard", title, "unchanged")
    if not dry_run:
        # folderUid, not folderId: Grafana 13 ignores the latter.
        body = {"dashboard": wanted, "folderUid": FOLDER_UID, "overwrite": True, "message": "hitratio grafana push"}
        grafana.do(f"save {title}", lambda: grafana.face.dashboard.update_dashboard(body))
    return Step("dashboard", title, "created" if found is None else "updated")


def _rule(grafana: _Grafana, wanted: Json, dry_run: bool) -> Step:
    title, address = wanted["title"], f"{_RULES}/{wanted['uid']}"
    found = grafana.find("read alert rules", lambda: grafana.face.api.GET(address))
    if found is not None and _contains(found, wanted):
        return Step("alert rule", title, "unchanged")
    if not dry_run:
        send, path = (grafana.face.api.POST, _RULES) if found is None else (grafana.face.api.PUT, address)
        grafana.do(f"save alert rule {title}", lambda: send(path, json=wanted, headers=_EDITABLE))
    return Step("alert rule", title, "created" if found is None else "updated")


def _contains(there: Any, wanted: Any) -> bool:
    """Whether Grafana has it all; what it adds of its own does not count."""
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(_contains(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(there, list)
            and len(there) == len(wanted)
            and all(_contains(each, value) for each, value in zip(there, wanted, strict=True))
        )
    return bool(there == wanted)


class _Grafana:
    """grafana-api's face, with all its kinds of failure as one."""

    def __init__(self, url: str, token: str) -> None:
        try:
            import requests
            import yaml
            from grafana_api.grafana_face import GrafanaFace
        except ImportError as error:
            raise PushError(
                f"{error.name} is not installed; install it with: pip install 'vllm-hitratio-plugin[grafana]'"
            ) from error
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise PushError(
                f"{url!r} is not an address such as https://grafana.example.com or http://host:3000/grafana"
            )
        if not token or any(character.isspace() for character in token):
            raise PushError("the token is empty or has spaces in it; take one of a Grafana service account")
        self.url = url.rstrip("/")
        prefix = parts.path.strip("/")
        self._session = requests
        self.read_yaml: Callable[[str], Any] = yaml.safe_load
        self.face: Any = GrafanaFace(
            auth=token,
            host=parts.netloc,
            url_path_prefix=f"{prefix}/" if prefix else "",
            protocol=parts.scheme,
            timeout=_TIMEOUT_S,
        )

    def check_version(self) -> None:
        """Make sure that a Grafana answers and is new enough; needs no token."""
        address = f"{self.url}/api/health"
        answer = self.do("reach it", lambda: self._session.get(address, timeout=_TIMEOUT_S))
        moved = answer.url if answer.history else ""
        if moved.endswith("/api/health"):
            raise PushError(f"{self.url} redirects to {moved.removesuffix('/api/health')}: use that address")
        if answer.status_code == 404 or moved:
            raise PushError(f"{address} is not there: is {self.url} Grafana, and is its sub-path part of the address?")
        if answer.status_code >= 400:
            raise PushError(f"{address} answers with {answer.status_code} {answer.reason}: Grafana is not healthy")
        try:
            health = answer.json()
        except ValueError:
            health = None
        if not isinstance(health, dict) or "database" not in health:
            raise PushError(f"{address} does not answer as Grafana does: is {self.url} Grafana?")
        number = re.match(r"(\d+)\.(\d+)", str(health.get("version", "")))
        # A Grafana can be configured to hide its version.
        if number and (int(number[1]), int(number[2])) < OLDEST:
            raise PushError(
                f"{self.url} is Grafana {health['version']}; the dashboards need {'.'.join(map(str, OLDEST))} or newer"
            )

    def prometheus(self) -> str:
        """uid of Grafana's Prometheus, the default data source before others."""
        listed = self.do("list data sources (or name one: --datasource-uid)", self.face.datasource.list_datasources)
        found = [source for source in listed if source.get("type") == "prometheus"]
        if not found:
            raise PushError(f"{self.url} has no Prometheus data source; add one, or push with --no-alerts")
        return str(max(found, key=lambda source: bool(source.get("isDefault")))["uid"])

    def find(self, what: str, call: Callable[[], Any]) -> Any:
        """What a GET finds, None if it is not there (404)."""
        return self.do(what, call, absent=True)

    def do(self, what: str, call: Callable[[], Any], *, absent: bool = False) -> Any:
        """What the call returns; its failures become a :class:`PushError`."""
        from grafana_api.grafana_api import GrafanaException

        requests = self._session
        try:
            return call()
        except GrafanaException as error:
            status = error.status_code
            if status == 404 and absent:
                return None
            raise PushError(self._refusal(status, what, error.response)) from error
        except requests.exceptions.SSLError as error:
            raise PushError(f"{self.url} has a certificate that is not trusted here: {_innermost(error)}") from error
        except requests.exceptions.Timeout as error:
            raise PushError(f"{self.url} does not answer within {_TIMEOUT_S:.0f} s") from error
        except requests.exceptions.ConnectionError as error:
            raise PushError(f"{self.url} cannot be reached: {_innermost(error)}") from error
        except ValueError as error:
            raise PushError(f"{self.url} does not answer as Grafana does when asked to {what}") from error
        except requests.exceptions.RequestException as error:
            raise PushError(f"{self.url}: {error}") from error

    def _refusal(self, status: int, what: str, response: Any) -> str:
        message = response.get("message") if isinstance(response, dict) else None
        said = f" ({message})" if message else ""
        if status == 401:
            return f"{self.url} does not accept the token (401): is it a service account's, of this Grafana, in date?"
        if status == 403:
            return f"the token may not {what} (403){said}: give its service account the role Editor, or Admin"
        if status == 404:
            return (
                f"{self.url} does not know how to {what} (404){said}: is it Grafana {OLDEST[0]}.{OLDEST[1]} or newer?"
            )
        return f"{self.url} refuses to {what}: {status}{said}"


def _innermost(error: BaseException) -> str:
    """The reason below the wrapping of requests and urllib3."""
    reason: BaseException = error
    while True:
        inner = getattr(reason, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((each for each in reason.args if isinstance(each, BaseException)), None)
        if inner is None:
            return re.sub(r"^<[^>]*>: |HTTP\w+\([^)]*\): ", "", str(reason))
        reason = inner

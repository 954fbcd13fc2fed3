"""What a running server says of itself, over HTTP."""

from __future__ import annotations

import http.client
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace

from vllm_hitratio_plugin.metrics.reader import Page, parse
from vllm_hitratio_plugin.settings import DEFAULT_PORT
from vllm_hitratio_plugin.snapshot import Snapshot
from vllm_hitratio_plugin.snapshot_json import from_json

_LARGEST = 64 << 20  # bytes
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class FetchError(Exception):
    """No answer, or none that can be used; the message is one sentence."""


def fetch(url: str, timeout: float = 5.0, *, whole: bool = False) -> Page:
    """Read a server's state.

    Args:
        url: A page of metrics, the exporter's ``/hitratio``, or the base address of either server: then the exporter's
            whole snapshot is preferred, and ``/metrics`` taken otherwise. ``http://`` may be left out.
        timeout: Seconds for everything, however it drips in.
        whole: Follow from a page of metrics to the exporter of each engine. Only exporters have the sums of the window,
            the explanations of degradations and the counters of a window ago.

    Raises:
        FetchError: a server does not answer, or with something else.
    """
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise FetchError(f"{url!r} is not an address of a server: use something like http://localhost:8000")
    deadline = time.monotonic() + timeout
    asked = [url]
    if parts.path.strip("/"):
        found = _get(url, deadline)
    else:
        asked = [urllib.parse.urljoin(url, path) for path in ("/hitratio.json", "/metrics")]
        found = _get(asked[0], deadline)
        if found is None or not _is_json(found):
            found = _get(asked[1], deadline)
    if found is None:
        raise FetchError(f"{url} has no such page: give the address of a vLLM server or of the plugin's exporter")
    page = _read(found)
    if page is None or not (page.snapshots or page.without_plugin or page.degraded):
        raise FetchError(f"{url} answers, but with neither hitratio_* nor vllm:* metrics: is it a vLLM server?")
    if whole and not _is_json(found):
        return replace(page, snapshots=[_followed(url, snapshot, deadline) for snapshot in page.snapshots])
    return page if page.snapshots else replace(page, looked_at=_looked_at(asked))


def _looked_at(asked: list[str]) -> str:
    """Where the plugin's figures were looked for, without what may be secret in an address."""
    parts = [urllib.parse.urlsplit(url) for url in asked]
    host, port = _in_url(parts[0].hostname or ""), parts[0].port
    at = f"{host}:{port}" if port else host
    words = f"There are no figures of the plugin at {' or '.join(f'{one.scheme}://{at}{one.path}' for one in parts)}."
    if port != DEFAULT_PORT:
        words += f" Not looked at: http://{host}:{DEFAULT_PORT}, where the exporter of an engine listens by default."
    return words


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _followed(url: str, snapshot: Snapshot, deadline: float) -> Snapshot:
    """The whole snapshot of an engine, from its own exporter.

    The exporter is sought on the host that was asked: a page may not send its reader to another one.
    """
    engine = f"{snapshot.model_name}, engine {snapshot.engine}"
    if snapshot.labels:
        labels = ", ".join(f"{name} {value}" for name, value in snapshot.labels.items())
        raise FetchError(
            f"{url} has only a part of the figures of {engine}, and shows it for another server ({labels}): give the "
            "address of that server, or of the engine's exporter"
        )
    if snapshot.exporter is None:
        raise FetchError(
            f"{url} has only a part of the figures of {engine}, and its exporter, which has them all, is off or could "
            f"not start: set --hitratio-port, {DEFAULT_PORT} by default"
        )
    host = urllib.parse.urlsplit(url).hostname or ""
    bound_host, port = _bound(snapshot.exporter)
    if bound_host in _LOOPBACK and host not in _LOOPBACK:
        raise FetchError(
            f"{url} has only a part of the figures of {engine}; its exporter has them all, but listens at "
            f"{snapshot.exporter} on that host alone: run the command there, or start the server with "
            "--hitratio-host 0.0.0.0"
        )
    place = f"http://{_in_url(host)}:{port}"
    try:
        found = _get(f"{place}/hitratio.json", deadline) if port else None
    except FetchError as error:
        raise FetchError(
            f"{error}; {url} names it as the exporter of {engine}, which has the rest of its figures"
        ) from None
    page = None if found is None else _read(found)
    if page is None or len(page.snapshots) != 1 or _engine(page.snapshots[0]) != _engine(snapshot):
        raise FetchError(
            f"{url} has only a part of the figures of {engine}, and {place} is not its exporter: give the address of "
            f"the exporter, which listens at {snapshot.exporter} on the host of the engine"
        )
    return replace(page.snapshots[0], vllm=snapshot.vllm)


def _bound(exporter: str) -> tuple[str | None, int | None]:
    """Host and port of an exporter's URL; None for what it does not say."""
    try:
        parts = urllib.parse.urlsplit(exporter)
        return parts.hostname, parts.port
    except ValueError:
        return None, None


def _engine(snapshot: Snapshot) -> tuple[str, str]:
    return snapshot.model_name, snapshot.engine


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _read(text: str) -> Page | None:
    try:
        return Page([from_json(text)], []) if _is_json(text) else parse(text, time.time())
    except ValueError:
        return None


def _get(url: str, deadline: float) -> str | None:
    """The body; None where the server has no such page.

    A socket's timeout is for each piece that comes, so the whole is waited for from another thread.
    """
    done: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put(_body(url, deadline))
        except Exception as error:
            done.put(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        try:
            found = done.get(timeout=_left(deadline))
        except queue.Empty:
            raise TimeoutError("timed out") from None
        if isinstance(found, Exception):
            raise found
        return found.decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 405):
            return None
        raise FetchError(f"{url} answers with HTTP status {error.code}") from None
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or str(error.reason)
        raise FetchError(f"{url} can't be reached: {reason.lower()}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise FetchError(f"{url} can't be read: {words.lower()}") from None


def _body(url: str, deadline: float) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json, text/plain;q=0.9"})
    with urllib.request.urlopen(request, timeout=_left(deadline)) as answer:
        body = bytearray()
        while part := answer.read1(1 << 20):
            body += part
            if len(body) > _LARGEST:
                raise ValueError(f"more than {_LARGEST >> 20} MiB")
            if time.monotonic() > deadline:
                raise TimeoutError("timed out")
        return bytes(body)


def _left(deadline: float) -> float:
    """Seconds left, and a moment where none are."""
    return max(deadline - time.monotonic(), 0.001)

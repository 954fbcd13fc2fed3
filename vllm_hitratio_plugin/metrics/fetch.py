"""What a running server says of itself, over HTTP."""

from __future__ import annotations

import http.client
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from vllm_hitratio_plugin.metrics.parse import Page, parse
from vllm_hitratio_plugin.snapshot import from_json

_LARGEST = 64 << 20  # bytes


class FetchError(Exception):
    """No answer, or none that can be used; the message is one sentence."""


def fetch(url: str, timeout: float = 5.0) -> Page:
    """Read a server's state.

    Args:
        url: A page of metrics, the exporter's ``/hitratio``, or the base address of either server: then the exporter's
            whole snapshot is preferred, and ``/metrics`` taken otherwise. ``http://`` may be left out.
        timeout: Seconds for the whole answer, however it drips in.
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
    if parts.path.strip("/"):
        found = _get(url, deadline)
    else:
        found = _get(urllib.parse.urljoin(url, "/hitratio.json"), deadline)
        if found is None or not found.lstrip().startswith("{"):
            found = _get(urllib.parse.urljoin(url, "/metrics"), deadline)
    if found is None:
        raise FetchError(f"{url} has no such page: give the address of a vLLM server or of the plugin's exporter")
    page = _read(found)
    if page is None or not (page.snapshots or page.without_plugin):
        raise FetchError(f"{url} answers, but with neither hitratio_* nor vllm:* metrics: is it a vLLM server?")
    return page


def _read(text: str) -> Page | None:
    try:
        if text.lstrip().startswith("{"):
            return Page([from_json(text)], [])
        return parse(text, time.time())
    except (ValueError, KeyError, TypeError, AttributeError):
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

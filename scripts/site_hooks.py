"""What mkdocs needs to show pages that are written for GitHub (mkdocs.yml, hooks)."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?(\))")
_NUMBERED = re.compile(r"\d+\. ")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The page's text as mkdocs wants it."""
    return _to_repository(_deeper(markdown), page.file.src_uri, config["repo_url"])


def _to_repository(markdown: str, page: str, repository: str) -> str:
    """Links that lead out of docs/ as addresses in the repository; other links stay relative."""

    def address(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/"):
            return match.group()
        return f"{before}{repository}/blob/main/{path}{anchor or ''}{after}"

    return _LINK.sub(address, markdown)


def _deeper(markdown: str) -> str:
    """What belongs to an item of a numbered list indented by 4 instead of 3, as Python-Markdown wants it."""
    lines, inside = [], False
    for line in markdown.split("\n"):
        if _NUMBERED.match(line):
            inside = True
        elif line and not line.startswith("   "):
            inside = False
        lines.append(f" {line}" if inside and line.startswith("   ") else line)
    return "\n".join(lines)

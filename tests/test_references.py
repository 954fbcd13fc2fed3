"""What code refers to is there for whoever clones the repository: pages, their headings, nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT

CODE = ("vllm_hitratio_plugin", "tools", "benchmarks", "examples", "scripts", "tests")
KINDS = {".py", ".sh", ".yaml", ".yml", ".j2"}

REFERENCE = re.compile(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?")

#: Notes and issues that are not in the repository, and folders next to it.
UNKNOWN = re.compile(
    r"\bMODEL (?:section|remark|\d)|\b(?:MODEL|VLLM|ASCEND|HYBRID|TIERS|CASES|STYLE|HOUSE)\.md|\bissue #?\d|\.\./shared"
)


def sources() -> Iterator[tuple[Path, str]]:
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and path.resolve() != Path(__file__).resolve():
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    fenced = False
    for line in page.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        heading = re.match(r"#{1,6}\s+(.+?)\s*#*$", line)
        if fenced or heading is None:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1))
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return names


def test_headings_become_anchors_as_on_github() -> None:
    page = "# A `tail`, and *more*\n## One\n## One\n```\n# a comment\n```\n## The paper's [estimator](x.md)\n"
    assert anchors(page) == {"a-tail-and-more", "one", "one-1", "the-papers-estimator"}


def test_every_reference_to_a_page_leads_to_one_of_its_headings() -> None:
    pages = {str(path.relative_to(ROOT)): anchors(path.read_text()) for path in (ROOT / "docs").rglob("*.md")}
    dead = []
    found = 0
    for path, text in sources():
        for page, anchor in REFERENCE.findall(text):
            found += 1
            if page not in pages or (anchor and anchor not in pages[page]):
                dead.append(f"{path}: {page}{'#' if anchor else ''}{anchor}")
    assert found > 30
    assert not dead


@pytest.mark.parametrize(
    "words", ["see MODEL section 4.2", "(MODEL 4.2)", "VLLM.md section 3", "issue 10", "../shared/CASES.md"]
)
def test_what_a_clone_lacks_is_recognized(words: str) -> None:
    assert UNKNOWN.search(words)


def test_nothing_refers_to_what_a_clone_lacks() -> None:
    """The traces next to the repository are an exception: the tests that read them skip without them."""
    assert not [f"{path}: {match.group()}" for path, text in sources() for match in UNKNOWN.finditer(text)]

"""What pages point at is there, and every benchmark, result and page of evidence is on the list of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for folder in (
        ".",
        "docs",
        "benchmarks",
        "benchmarks/evidence",
        "benchmarks/results",
        "measurements",
        "specs",
        "examples",
    )
    for path in (ROOT / folder).glob("*.md")
)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if link.startswith(("http:", "https:")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert not wrong


def test_the_list_of_benchmarks_has_them_all() -> None:
    folder = ROOT / "benchmarks"
    text = (folder / "README.md").read_text("utf-8")
    written = [
        f"({path.relative_to(folder)})" for kind in ("evidence", "results") for path in (folder / kind).iterdir()
    ]
    scripts = [path.name for path in folder.glob("*.py")]
    assert not [name for name in (*written, *scripts) if name not in text]

"""The decisions are numbered without gaps and indexed, and every reference to one names an existing page."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(DECISIONS.glob("[0-9]*.md"))
REFERENCE = re.compile(r"decisions?/?[ (]*\[?(\d{4})\b(-[a-z0-9.-]+\.md)?", re.IGNORECASE)
STATUS = re.compile(r"^Status: (accepted|proposed|replaced by \[\d{4}\])", re.M)


def test_decisions_are_numbered_without_gaps() -> None:
    assert [page.name[:4] for page in PAGES] == [f"{number:04d}" for number in range(len(PAGES))]


def test_the_index_lists_every_decision_with_its_title_and_status() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        text = page.read_text(encoding="utf-8")
        number, title = text.partition("\n")[0].removeprefix("# ").split(": ", 1)
        assert f"| [{number}]({page.name}) | {title} | " in index
        assert STATUS.search(text), page.name


def test_references_to_decisions_name_existing_pages() -> None:
    files = [path for folder in ("src", "docs", "scripts", "tests") for path in (ROOT / folder).rglob("*.*")]
    pages_by_number = {page.name[:4]: page.name for page in PAGES}
    missing = []
    for path in (*files, *ROOT.glob("*.md")):
        if path.suffix in (".py", ".md"):
            for number, rest in REFERENCE.findall(path.read_text(encoding="utf-8")):
                page = pages_by_number.get(number)
                if page is None or (rest and page != f"{number}{rest}"):
                    missing.append(f"{path.relative_to(ROOT)}: {number}{rest}")
    assert not missing

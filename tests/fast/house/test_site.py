"""The sources of `make site`: the navigation lists every page once, and links lead to staged files. Sphinx is not
run.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from inputs.project_scripts import script_module

ROOT = Path(__file__).resolve().parents[3]


def test_the_navigation_lists_every_page_once() -> None:
    site = script_module("scripts/site_pages.py")
    listed = Counter(page for entries in site.navigation().values() for _, page in entries)
    pages = {page for page in site.sources() if not page.startswith(("examples/", "docs/decisions/"))}
    expected = pages - {"README.md", "docs/README.md"} | {"docs/decisions/README.md"}
    assert set(listed) == expected
    assert [page for page, count in listed.items() if count > 1] == []


def test_links_of_staged_pages_lead_to_staged_files(tmp_path: Path) -> None:
    site = script_module("scripts/site_pages.py")
    site.stage(tmp_path)
    broken = []
    for page in tmp_path.rglob("*.md"):
        if page.is_relative_to(tmp_path / "files"):
            continue
        prose = re.sub(
            r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        )
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(tmp_path)}: {target}")
    assert not broken


def test_pages_and_theme_load_nothing_from_the_network() -> None:
    theme = ROOT / "scripts" / "site_theme"
    texts = [path.read_text(encoding="utf-8") for path in theme.rglob("*") if path.suffix in (".py", ".css")]
    assert len(texts) == 2
    assert not [text for text in texts if re.search(r"https?://|url\(", text)]

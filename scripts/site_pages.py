"""Copy the documents into a folder of sources for Sphinx: python scripts/site_pages.py FOLDER

docs/ becomes the root of the site, README.md its front page; the other pages of the project's root, the examples and
linked files are added. Links are rewritten to the new places. The navigation is docs/README.md: a heading is a section,
and the links in its tables are the pages, in that order. A page that is listed twice or not at all is an error
(tests/fast/house/test_site.py, without Sphinx).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from docs import ELSEWHERE, LINK, api_page

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "docs" / "README.md"
MOVED = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "understand/architecture.md",
    "SECURITY.md": "operate/security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/README.md": "contents.md",
}


@cache
def sources() -> list[str]:
    """The pages of the site, as paths in the project; cached, because every link is looked up in them."""
    folders = (path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.md"))
    return sorted({*MOVED, *(path.relative_to(ROOT).as_posix() for path in folders)})


def staged(path: str) -> str:
    """The place of a file of the project in the site."""
    if path in MOVED:
        return MOVED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path in sources() else f"files/{path}"


def navigation() -> dict[str, list[tuple[str, str]]]:
    """The sections of docs/README.md: title and path in the project of each page that a table links."""
    sections: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    for line in INDEX.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| ["):
            for title, target in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", line.split(" | ")[0]):
                page = os.path.normpath(INDEX.parent.relative_to(ROOT) / target)
                sections.setdefault(heading, []).append((title, page))
    return sections


def _linked(text: str, page: str, files: set[str]) -> Iterator[str]:
    """The lines of a page with its links rewritten; `files` gets the linked files that are no pages."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced:
            yield line
            continue
        prose = re.sub(r"`[^`]*`", lambda code: " " * len(code.group()), line)
        for match in reversed(list(LINK.finditer(prose))):
            group = 1 if match.group(1) else 2
            target = match.group(group)
            name, hash_sign, anchor = target.partition("#")
            if ELSEWHERE.match(target) or not name:
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(page), name))
            if path not in sources():
                files.add(path)
            place = os.path.relpath(staged(path), os.path.dirname(staged(page)) or ".")
            line = line[: match.start(group)] + place + hash_sign + anchor + line[match.end(group) :]
        yield line


def _toctree(caption: str, entries: list[str]) -> str:
    named = f":caption: {caption}\n" if caption else ""
    return "\n```{toctree}\n:hidden:\n:maxdepth: 1\n" + named + "\n".join(["", *entries]) + "\n```\n"


def stage(folder: Path) -> None:
    """Write all sources of the site into `folder`."""
    files: set[str] = set()
    pages = navigation()
    listed = {page for entries in pages.values() for _, page in entries}
    for page in sources():
        text = "\n".join(_linked((ROOT / page).read_text(encoding="utf-8"), page, files)) + "\n"
        if page == "README.md":
            for caption, entries in pages.items():
                names = [f"{title} <{staged(name).removesuffix('.md')}>" for title, name in entries]
                text += _toctree(caption, [*names, *(["Public names <public-names>"] if caption == "Extend" else [])])
        elif page == "docs/decisions/README.md":
            text += _toctree("", [path.stem for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))])
        elif page not in listed and not page.startswith("docs/decisions/"):
            text = "---\norphan: true\n---\n" + text
        place = folder / staged(page)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    for name in files:
        place = folder / staged(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile)(ROOT / name, place)
    (folder / "public-names.md").write_text(api_page(), encoding="utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))

"""Check the documents: links resolve, and generate the list of public names.

Two steps, the second only if the first succeeds:
  1. every relative link in a Markdown file of the project leads to a file that exists, and its #anchor to a
     heading of that file;
  2. build/docs/api.md is written: each public module, the names in its `__all__`, and their first sentence.

External links are not followed: a check that needs the network fails for other reasons than a bad link. The code is
read, not imported, so no Spark and no installation is needed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "millstream"
PUBLIC_PACKAGES = ("common", "datastream", "metrics", "testing")

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")


def documents() -> list[Path]:
    """The Markdown files of the project, without hidden folders and build products."""
    found = (path for path in ROOT.rglob("*.md") if path.is_file())
    return sorted(path for path in found if not re.search(r"(^|/)(\.|build/|dist/)", path.relative_to(ROOT).as_posix()))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines outside fenced code and with `inline code` blanked: only there brackets mean links."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", lambda code: " " * len(code.group()), line)


def anchors(path: Path) -> set[str]:
    """The #anchors of a file's headings, generated like code hosts do."""
    seen: dict[str, int] = {}
    found = set()
    fenced = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        match = HEADING.match(line)
        if fenced or match is None:
            continue
        slug = re.sub(r"[^\w\- ]", "", match.group(1).lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def broken_links(path: Path) -> Iterator[str]:
    """One sentence per broken link of this document."""
    for number, line in prose(path):
        for match in LINK.finditer(line):
            target = match.group(1) or match.group(2)
            if ELSEWHERE.match(target):
                continue
            name, _, anchor = target.partition("#")
            place = (path.parent / name).resolve() if name else path
            where = f"{path.relative_to(ROOT)}:{number}"
            if not place.exists():
                yield f"{where}: {target}: there is no such file"
            elif anchor and place.suffix == ".md" and anchor not in anchors(place):
                yield f"{where}: {target}: {place.name} has no such heading"


def public_names(tree: ast.Module) -> list[str]:
    """The literal strings of a module's `__all__`; empty if it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [str(leaf.value) for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant)]
    return []


def first_sentences(tree: ast.Module) -> dict[str, str]:
    """The first line of the docstring of each class and function defined in a module."""
    defined = (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    return {node.name: (ast.get_docstring(node) or "").partition("\n")[0] for node in defined}


def api_page() -> str:
    """The list of public names as Markdown."""
    parts = ["# Public names\n\nMade by `make docs` from each module's `__all__`.\n"]
    for package in PUBLIC_PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            module = path.relative_to(SOURCE.parent).with_suffix("").as_posix().replace("/", ".")
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names, sentences = public_names(tree), first_sentences(tree)
            if not names or any(part.startswith("_") and part != "__init__" for part in module.split(".")):
                continue
            parts.append(f"\n## {module.removesuffix('.__init__')}\n")
            parts += [f"- `{name}` {sentences.get(name, '')}".rstrip() for name in sorted(names)]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Check, then write; the exit code is 1 if a link is broken."""
    broken = [sentence for path in documents() for sentence in broken_links(path)]
    for sentence in broken:
        print(sentence, file=sys.stderr)
    if broken:
        return 1
    page = ROOT / "build" / "docs" / "api.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(api_page(), encoding="utf-8")
    print(f"links hold in {len(documents())} documents; public names are in {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

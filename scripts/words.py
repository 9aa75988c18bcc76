"""Lists the words that our code and docs use where the field has a term, so that they can be replaced.

    scripts/words.py                  lists every such word under src, docs and in the pages at the root
    scripts/words.py src/millstream/state docs/datastream/time.md --count

Two rules, both tested by tests/fast/house/test_words.py:

- **Names**: no module, class, function, parameter or local has one of `NAME_WORDS` as a part (`kept_rows`,
  `_alone_as_given`). Names that users type and names in stored files are excepted in `NAME_EXCEPTIONS`.
- **Prose**: no docstring, comment, message or page uses one of `PROSE_WORDS`. Code in backquotes and code blocks of
  pages are not prose. `PROSE_EXCEPTIONS` lists sentences that need the word, with the reason.

docs/glossary.md defines the terms to write instead; the list names the common ones.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

PROSE_WORDS = {
    "told": "reported, logged, warned, detected",
    "tells": "reports, says",
    "tell": "report, distinguish",
    "telling": "reporting",
    "kept": "stored, retained, pinned, cached",
    "asked": "requested, queried",
    "asks": "requests, queries",
    "asking": "requesting, querying",
    "stands": "is, is stored, is listed",
    "stand": "be, be stored, be listed",
    "standing": "emitted result, current",
    "standings": "emitted results",
    "beside": "next to, concurrently with, in addition to",
    "whoever": "the caller, the reader, the consumer",
    "forgotten": "expired, evicted, dropped",
    "forgets": "expires, evicts, drops",
    "forget": "expire, evict, drop",
    "taken away": "retracted, deleted, removed",
    "takes away": "retracts, deletes, removes",
    "take away": "retract, delete, remove",
    "takes back": "retracts",
    "taken back": "retracted",
    "given out": "emitted",
    "gives out": "emits",
    "give out": "emit",
    "given up": "abandoned, failed",
    "heard": "received",
    "hears": "receives",
    "yesterday": "an older version",
    "lots": "random choices",
    "riddle": "",
    "strangers": "untrusted clients",
    "stranger": "untrusted client",
    "befalls": "happens to",
    "bears": "supports",
    "borne": "supported",
    "goes on": "continues",
    "go on": "continue",
    "going on": "continuing",
    "for good": "permanently",
    "meanwhile": "concurrently, in the meantime",
    "so many": "N, a number of",
    "such a": "a … of this kind",
    "may be of": "",
    "for ever": "forever",
    "and the like": "such as …, and similar functions",
    "texts": "strings",
    "typing error": "typo",
    "what else was possible": "Alternatives considered",
    "what it costs": "Costs",
}
RARE_WORDS = (
    "found",
    "given",
    "gives",
    "give",
    "gone",
    "goes",
    "comes",
    "come",
    "came",
    "what",
    "who",
    "those",
    "has",
    "looks",
)
"""Words that are right in places ("not found", "a given key"). They are listed on request and not tested."""

NAME_WORDS = frozenset(
    (
        "told",
        "tell",
        "tells",
        "telling",
        "kept",
        "asked",
        "asks",
        "asker",
        "asking",
        "found",
        "given",
        "gives",
        "give",
        "gave",
        "stands",
        "stand",
        "standing",
        "standings",
        "beside",
        "whoever",
        "forgotten",
        "forget",
        "forgets",
        "gone",
        "heard",
        "laid",
        "took",
        "taken",
        "bear",
        "bears",
        "borne",
        "apart",
        "alone",
        "said",
        "say",
        "says",
        "looked",
        "look",
        "looks",
        "befall",
        "strangers",
        "stranger",
        "away",
        "theirs",
        "mine",
        "ours",
        "born",
        "came",
        "comes",
    )
)
NAME_EXCEPTIONS = {
    "EpochGoneError": "public in millstream.query",
    "StoreAwayError": "public in millstream.errors",
    "ConnectorAwayError": "public in millstream.errors",
    "comes_with": "an argument of a public error",
    "says": "a field of millstream.testing.connectors",
    "KeptTable": "uids derive from the class names of operations",
    "born": "a field of stored files",
    "tell": "a method of Python's files",
}
"""Names, as they are written, with the reason why they stay."""
PROSE_EXCEPTIONS = {
    'f"what ({plan.rows(each.input)}) tell with': "a meaning, which is stored with state",
    "    kept      the same uid": "a fate's name, which users see",
    "    extended  kept, and": "a fate's name, which users see",
    "| kept | the state": "a fate's name, which users see",
    "If all state is kept or extended": "a fate's name, which users see",
    "kept      Source: orders": "output with a fate's name",
}
"""Parts of lines, as they are written, with the reason why they stay."""

_PROSE = re.compile(
    r"\b(" + "|".join(sorted(map(re.escape, PROSE_WORDS), key=len, reverse=True)) + r")\b", re.IGNORECASE
)
_RARE = re.compile(r"\b(" + "|".join(RARE_WORDS) + r")\b", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CODE = re.compile(r"``[^`]*``|`[^`\n]*`|\]\([^)\s]*\)|https?://\S+|\{[^{}]*\}")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


class Use(NamedTuple):
    kind: str
    path: str
    line: int
    word: str
    text: str


def uses(path: Path, root: Path = ROOT) -> list[Use]:
    """The names and the lines of prose of a file that have one of the words."""
    names = name_uses(path, root) if path.suffix == ".py" else ()
    return [*names, *prose_uses(path, root)]


def name_uses(path: Path, root: Path = ROOT) -> Iterator[Use]:
    """Every name bound in the module that has a word of `NAME_WORDS` as a part."""
    names = [(0, path.stem)]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.attr))
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.append((node.lineno, node.name))
    for line, name in sorted(set(names)):
        for part in _PARTS.findall(name):
            if part.lower() in NAME_WORDS and name.strip("_") not in NAME_EXCEPTIONS:
                yield Use("name", shown(path, root), line, part.lower(), name)


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of prose: a page without its code, or a module's docstrings, comments and texts that have spaces."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        plain = _FENCE.sub(lambda block: "\n" * block.group().count("\n"), text)
        yield from enumerate(plain.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.STRING and " " in token.string:
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                if not line.lstrip().startswith((">>>", "...")):
                    yield number, line


def prose_uses(path: Path, root: Path = ROOT, kind: str = "prose", words: re.Pattern[str] = _PROSE) -> Iterator[Use]:
    for number, line in prose_of(path):
        if not any(sentence in line for sentence in PROSE_EXCEPTIONS):
            for match in words.finditer(_CODE.sub("` `", line)):
                yield Use(kind, shown(path, root), number, match.group().lower(), line.strip())


def shown(path: Path, root: Path = ROOT) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix()


def files(paths: list[Path]) -> Iterator[Path]:
    for path in paths or [ROOT / "src", ROOT / "docs", *sorted(ROOT.glob("*.md"))]:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.suffix in (".py", ".md"))
        else:
            yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders; all of src and docs if none is named")
    parser.add_argument("--count", action="store_true", help="count each word instead of listing its lines")
    parser.add_argument("--rare", action="store_true", help="the words that are only counted, too")
    arguments = parser.parse_args()
    listed = []
    for path in files(arguments.paths):
        listed += uses(path)
        if arguments.rare:
            listed += prose_uses(path, kind="rare", words=_RARE)
    if arguments.count:
        for (kind, word), count in Counter((use.kind, use.word) for use in listed).most_common():
            print(f"{count:6} {kind:5} {word}")
    else:
        for use in listed:
            instead = f" ({PROSE_WORDS[use.word]})" if use.kind == "prose" and PROSE_WORDS[use.word] else ""
            print(f"{use.path}:{use.line}: {use.kind} {use.word}{instead}: {use.text}")
    sys.exit(bool(listed))


if __name__ == "__main__":
    main()

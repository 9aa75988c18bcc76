"""Code and docs use the field's terms: the words that scripts/words.py lists do not come back.

A rewritten package has none of them. `REMAINING` bounds the others: a change that rewrites a package lowers its
number, and no change raises one.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow  # reads all modules and pages

ROOT = Path(__file__).resolve().parents[3]

REMAINING: dict[str, int] = {}
"""Names and lines of prose with such a word, by package and folder of pages."""


def _words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", ROOT / "scripts" / "words.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["words"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


words = _words()


def area(path: str) -> str:
    """The package or folder that a file counts for."""
    parts = path.split("/")
    if parts[0] == "src":
        return parts[2] if len(parts) > 3 else "millstream"
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def test_code_and_docs_use_the_terms_of_the_field() -> None:
    uses = [use for path in words.files([]) for use in words.uses(path)]
    counts = Counter(area(use.path) for use in uses)
    above = {name: (count, REMAINING.get(name, 0)) for name, count in counts.items() if count > REMAINING.get(name, 0)}
    shown = "\n".join(f"{use.path}:{use.line}: {use.word}: {use.text}" for use in uses if area(use.path) in above)
    assert not above, f"(count, bound): {above}. Write the field's term instead:\n{shown}"


def test_bounds_are_as_low_as_they_can_be() -> None:
    counts = Counter(area(use.path) for path in words.files([]) for use in words.uses(path))
    assert {name: counts[name] for name in REMAINING} == REMAINING, "lower the bounds to the counts"


def test_words_are_found_in_names_docstrings_comments_messages_and_pages(tmp_path: Path) -> None:
    module = tmp_path / "kept_rows.py"
    module.write_text(
        '"""Rows are kept."""\n\n\ndef tell(given: int) -> str:  # beside it\n    return "a row stands here"\n'
    )
    page = tmp_path / "page.md"
    page.write_text("A row is told.\n`told` is code.\n```\nkept\n```\n")
    words_used = [use.word for use in words.uses(module, tmp_path)]
    assert sorted(words_used) == ["beside", "given", "kept", "kept", "stands", "tell"]
    assert [use.line for use in words.uses(page, tmp_path)] == [1]

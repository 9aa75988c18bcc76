"""Code and docs use the field's terms: the words that scripts/words.py lists do not come back.

A word that has to stay is listed there as an exception, with the reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from inputs.project_scripts import script_module

pytestmark = pytest.mark.slow  # reads all modules and pages


words = script_module("scripts/words.py")


def test_code_and_docs_use_the_terms_of_the_field() -> None:
    uses = [use for path in words.files([]) for use in words.uses(path)]
    lines = "\n".join(f"{use.path}:{use.line}: {use.word}: {use.text}" for use in uses)
    assert not uses, f"write the field's term (scripts/words.py, docs/glossary.md):\n{lines}"


def test_every_exception_is_needed() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in words.files([]))
    unused = [part for part in (*words.NAME_EXCEPTIONS, *words.PROSE_EXCEPTIONS) if part not in text]
    assert not unused, f"remove these exceptions from scripts/words.py: {unused}"


def test_listed_words_are_reported_in_names_docstrings_comments_messages_and_pages(tmp_path: Path) -> None:
    module = tmp_path / "kept_rows.py"
    module.write_text(
        '"""Rows are kept."""\n\n\ndef told(given: int) -> str:  # beside it\n    return "a row stands here"\n'
    )
    page = tmp_path / "page.md"
    page.write_text("A row is told.\n`told` is code.\n```\nkept\n```\n")
    words_used = [use.word for use in words.uses(module, tmp_path)]
    assert sorted(words_used) == ["beside", "given", "kept", "kept", "stands", "told"]
    assert [use.line for use in words.uses(page, tmp_path)] == [1]

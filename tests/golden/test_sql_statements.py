"""Statements that are right are read; what is told of those that are wrong is kept in files.

The files of `sql_statements/wrong` hold statements and the error each one gives; a change of a message is a change of a
file. After one that is meant, `MILLSTREAM_REWRITE=1 pytest tests/golden/test_sql_statements.py` writes them anew: read
the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from millstream.errors import SqlError
from millstream.sql.parser import parse_statement, parse_statements
from millstream.sql.statements import Insert

FOLDER = Path(__file__).parent / "sql_statements"
STORY = re.compile(r"^=== (.+)\n((?:(?!^--- ).*\n)*?)---\n((?:(?!^=== ).*\n)*)", re.MULTILINE)
THEMES = sorted(path.name for path in (FOLDER / "wrong").glob("*.txt"))


def stories(path: Path) -> list[tuple[str, str, str]]:
    """(title, statement, what is told) of each statement of a file."""
    text = path.read_text()
    matches = [(title, statement, told.strip("\n")) for title, statement, told in STORY.findall(text)]
    assert len(matches) == len(re.findall("^=== ", text, re.MULTILINE))
    return matches


def told(statement: str) -> str:
    try:
        parse_statement(statement.rstrip("\n"))
    except SqlError as problem:
        return str(problem)
    return "(it was read)"


@pytest.mark.parametrize("theme", THEMES)
def test_a_wrong_statement_is_told_this(theme: str) -> None:
    path = FOLDER / "wrong" / theme
    written = stories(path)
    seen = [told(statement) for _, statement, _ in written]
    if os.environ.get("MILLSTREAM_REWRITE"):
        parts = [f"=== {title}\n{text}---\n{error}\n" for (title, text, _), error in zip(written, seen, strict=True)]
        path.write_text("\n".join(parts))
    for (title, _, expected), error in zip(written, seen, strict=True):
        assert error == expected, f"{theme}: {title}"


def test_every_wrong_statement_is_refused_with_its_place() -> None:
    for theme in THEMES:
        for title, _, error in stories(FOLDER / "wrong" / theme):
            assert re.search(r"^  line \d+, column \d+:\n    .*\n    \s*\^+$", error, re.MULTILINE), f"{theme}: {title}"


def test_there_are_more_than_a_hundred_wrong_statements_and_no_two_are_the_same() -> None:
    statements = [statement for theme in THEMES for _, statement, _ in stories(FOLDER / "wrong" / theme)]
    assert len(statements) == len(set(statements)) >= 100


def test_every_right_statement_is_read() -> None:
    assert len(parse_statements((FOLDER / "right.sql").read_text())) >= 300


def test_every_nexmark_query_is_read_and_writes_into_its_table() -> None:
    for number in range(24):
        statements = parse_statements((FOLDER / "nexmark" / f"q{number}.sql").read_text())
        (insert,) = [each for each in statements if isinstance(each, Insert)]
        assert insert.table == (f"q{number}_result",)
    assert len(parse_statements((FOLDER / "nexmark" / "tables.sql").read_text())) == 4

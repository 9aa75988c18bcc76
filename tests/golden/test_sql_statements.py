"""Valid statements parse; the errors of invalid ones are recorded in files.

The files of `sql_statements/wrong` contain statements and the error of each; a changed message is a changed file. After
an intended one, `MILLSTREAM_REWRITE=1 pytest tests/golden/test_sql_statements.py` rewrites them: review the difference.
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
    """(title, statement, error) of each statement of a file."""
    text = path.read_text()
    matches = [(title, statement, error_of.strip("\n")) for title, statement, error_of in STORY.findall(text)]
    assert len(matches) == len(re.findall("^=== ", text, re.MULTILINE))
    return matches


def error_of(statement: str) -> str:
    try:
        parse_statement(statement.rstrip("\n"))
    except SqlError as problem:
        return str(problem)
    return "(it was read)"


@pytest.mark.parametrize("theme", THEMES)
def test_a_wrong_statement_has_the_recorded_error(theme: str) -> None:
    path = FOLDER / "wrong" / theme
    written = stories(path)
    seen = [error_of(statement) for _, statement, _ in written]
    if os.environ.get("MILLSTREAM_REWRITE"):
        parts = [f"=== {title}\n{text}---\n{error}\n" for (title, text, _), error in zip(written, seen, strict=True)]
        path.write_text("\n".join(parts))
    for (title, _, expected), error in zip(written, seen, strict=True):
        assert error == expected, f"{theme}: {title}"


def test_every_wrong_statement_is_rejected_with_its_position() -> None:
    for theme in THEMES:
        for title, _, error in stories(FOLDER / "wrong" / theme):
            assert re.search(r"^  line \d+, column \d+:\n    .*\n    \s*\^+$", error, re.MULTILINE), f"{theme}: {title}"


def test_there_are_more_than_a_hundred_distinct_wrong_statements() -> None:
    statements = [statement for theme in THEMES for _, statement, _ in stories(FOLDER / "wrong" / theme)]
    assert len(statements) == len(set(statements)) >= 100


def test_every_right_statement_parses() -> None:
    assert len(parse_statements((FOLDER / "right.sql").read_text())) >= 300


def test_every_nexmark_query_parses_and_writes_into_its_table() -> None:
    for number in range(24):
        statements = parse_statements((FOLDER / "nexmark" / f"q{number}.sql").read_text())
        (insert,) = [each for each in statements if isinstance(each, Insert)]
        assert insert.table == (f"q{number}_result",)
    assert len(parse_statements((FOLDER / "nexmark" / "tables.sql").read_text())) == 4

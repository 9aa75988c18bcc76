"""Statements that parse but cannot be bound: their errors are recorded in files.

The files of `sql_statements/unbound` contain statements and the error of the last one, over the tables of
`unbound_tables.sql`; a changed message is a changed file. After an intended one, `MILLSTREAM_REWRITE=1 pytest
tests/golden/test_unbound_statements.py` rewrites them: review the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from millstream.errors import MillstreamError
from millstream.planner.binder import bind_query
from millstream.planner.passes import optimised
from millstream.planner.session import PlannerSession
from millstream.planner.statements import bind_create_as, bind_insert, run
from millstream.planner.table_operations import collect
from millstream.sql.parser import parse_statements
from millstream.sql.statements import CreateTable, Insert, QueryStatement, Statement

FOLDER = Path(__file__).parent / "sql_statements"
STORY = re.compile(r"^=== (.+)\n((?:(?!^--- ).*\n)*?)---\n((?:(?!^=== ).*\n)*)", re.MULTILINE)
THEMES = sorted(path.name for path in (FOLDER / "unbound").glob("*.txt"))


def stories(path: Path) -> list[tuple[str, str, str]]:
    """(title, statements, error) of each story of a file."""
    text = path.read_text()
    matches = [(title, statement, error_of.strip("\n")) for title, statement, error_of in STORY.findall(text)]
    assert len(matches) == len(re.findall("^=== ", text, re.MULTILINE))
    return matches


def carry_out(statement: Statement, session: PlannerSession) -> None:
    """Process a statement like `execute_sql`, up to the optimised plan."""
    if isinstance(statement, Insert):
        optimised([bind_insert(statement, session)], session)
    elif isinstance(statement, QueryStatement):
        optimised([collect(bind_query(statement.query, session), None)], session)
    elif isinstance(statement, CreateTable) and statement.query is not None:
        sink = bind_create_as(statement, session)
        optimised([sink] if sink is not None else [], session)
    else:
        run(statement, session)


def error_of(text: str) -> str:
    session = PlannerSession()
    for statement in parse_statements((FOLDER / "unbound_tables.sql").read_text()):
        carry_out(statement, session)
    try:
        for statement in parse_statements(text.rstrip("\n")):
            carry_out(statement, session)
    except MillstreamError as error:
        return str(error)
    return "(it is right)"


@pytest.mark.parametrize("theme", THEMES)
def test_an_unbound_statement_has_the_recorded_error(theme: str) -> None:
    path = FOLDER / "unbound" / theme
    written = stories(path)
    seen = [error_of(statement) for _, statement, _ in written]
    if os.environ.get("MILLSTREAM_REWRITE"):
        parts = [f"=== {title}\n{text}---\n{error}\n" for (title, text, _), error in zip(written, seen, strict=True)]
        path.write_text("\n".join(parts))
        return
    for (title, _, expected), error in zip(written, seen, strict=True):
        assert error == expected, f"{theme}: {title}"


def test_every_statement_is_invalid_and_unique() -> None:
    all_stories = [story for theme in THEMES for story in stories(FOLDER / "unbound" / theme)]
    statements = [statement for _, statement, _ in all_stories]
    assert len(statements) == len(set(statements)) >= 100
    assert not [title for title, _, error in all_stories if error == "(it is right)"]


def test_every_error_below_a_whole_table_marks_its_place() -> None:
    without = [
        title
        for theme in THEMES
        if theme != "sinks.txt"
        for title, _, error in stories(FOLDER / "unbound" / theme)
        if not re.search(r"^  line \d+, column \d+:\n    .*\n    \s*\^+$", error, re.MULTILINE)
    ]
    assert not without

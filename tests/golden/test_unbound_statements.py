"""Statements that can be read but mean nothing, or what cannot be: what is told of each is kept in files.

The files of `sql_statements/unbound` hold statements and the error the last one gives, among the tables of
`unbound_tables.sql`; a change of a message is a change of a file. After one that is meant,
`MILLSTREAM_REWRITE=1 pytest tests/golden/test_unbound_statements.py` writes them anew: read the difference.
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
    """(title, statements, what is told) of each story of a file."""
    text = path.read_text()
    matches = [(title, statement, told.strip("\n")) for title, statement, told in STORY.findall(text)]
    assert len(matches) == len(re.findall("^=== ", text, re.MULTILINE))
    return matches


def carry_out(statement: Statement, session: PlannerSession) -> None:
    """What `execute_sql` does with a statement, up to the optimised plan."""
    if isinstance(statement, Insert):
        optimised([bind_insert(statement, session)], session)
    elif isinstance(statement, QueryStatement):
        optimised([collect(bind_query(statement.query, session), None)], session)
    elif isinstance(statement, CreateTable) and statement.query is not None:
        sink = bind_create_as(statement, session)
        optimised([sink] if sink is not None else [], session)
    else:
        run(statement, session)


def told(text: str) -> str:
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
def test_what_is_told_of_a_statement_that_cannot_be_bound(theme: str) -> None:
    path = FOLDER / "unbound" / theme
    written = stories(path)
    seen = [told(statement) for _, statement, _ in written]
    if os.environ.get("MILLSTREAM_REWRITE"):
        parts = [f"=== {title}\n{text}---\n{error}\n" for (title, text, _), error in zip(written, seen, strict=True)]
        path.write_text("\n".join(parts))
        return
    for (title, _, expected), error in zip(written, seen, strict=True):
        assert error == expected, f"{theme}: {title}"


def test_none_of_them_is_right_and_no_two_are_the_same() -> None:
    all_stories = [story for theme in THEMES for story in stories(FOLDER / "unbound" / theme)]
    statements = [statement for _, statement, _ in all_stories]
    assert len(statements) == len(set(statements)) >= 100
    assert not [title for title, _, error in all_stories if error == "(it is right)"]


def test_all_but_those_about_whole_tables_draw_the_place() -> None:
    without = [
        title
        for theme in THEMES
        if theme != "sinks.txt"
        for title, _, error in stories(FOLDER / "unbound" / theme)
        if not re.search(r"^  line \d+, column \d+:\n    .*\n    \s*\^+$", error, re.MULTILINE)
    ]
    assert not without

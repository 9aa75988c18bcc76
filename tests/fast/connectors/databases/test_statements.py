"""JDBC's statements in the words of Python's clients."""

from __future__ import annotations

import pytest

from millstream.connectors.databases.statements import inserted_columns, with_percent_parameters
from millstream.errors import ProgramError


@pytest.mark.parametrize(
    ("sql", "translated", "count"),
    [
        ("INSERT INTO t VALUES (?, ?)", "INSERT INTO t VALUES (%s, %s)", 2),
        ("SELECT '?' || ? -- why?\n, ?", "SELECT '?' || %s -- why?\n, %s", 2),
        ('SELECT /* ? */ "a?" = ?, `b?`, $$?$$, $x$?$x$', 'SELECT /* ? */ "a?" = %s, `b?`, $$?$$, $x$?$x$', 1),
        ("SELECT 'it''s ?', 10 % ?", "SELECT 'it''s ?', 10 %% %s", 1),
        ("SELECT j ?? 'k' AND n = ?", "SELECT j ? 'k' AND n = %s", 1),
    ],
)
def test_parameters_are_recognised_outside_of_texts_names_and_comments(sql: str, translated: str, count: int) -> None:
    assert with_percent_parameters(sql) == (translated, count)


def test_nothing_is_no_statement() -> None:
    with pytest.raises(ProgramError, match="expected SQL"):
        with_percent_parameters("  ")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ('insert into s.t (a, "B") values (?,?);', ("s.t", 'a, "B"')),
        ("INSERT INTO t (a) VALUES (?)", ("t", "a")),
        ("INSERT INTO t (a, b) VALUES (?)", None),
        ("INSERT INTO t (a) VALUES (? + 1)", None),
        ("INSERT INTO t (a) VALUES (?) ON CONFLICT DO NOTHING", None),
        ("INSERT INTO t (a) VALUES (lower(?))", None),
        ("INSERT INTO t VALUES (?)", None),
    ],
)
def test_only_a_plain_insert_may_be_copied(sql: str, found: tuple[str, str] | None) -> None:
    assert inserted_columns(sql) == found

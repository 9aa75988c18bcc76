"""Hints: those that mean nothing where they stand are refused at their place, the others are read."""

from __future__ import annotations

import pytest
from planned import bound, plan, sinks

from millstream.errors import SqlError


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            "SELECT * FROM t /*+ OPTION('rows-per-second' = '5') */",
            "the hint 'OPTION' does not exist here. Did you mean 'OPTIONS'?",
        ),
        (
            "SELECT /*+ STATE_TLL('t' = '1 d') */ a FROM t",
            "the hint 'STATE_TLL' does not exist here. Did you mean 'STATE_TTL'?",
        ),
        ("SELECT /*+ OPTIONS('rows-per-second' = '5') */ a FROM t", r"FROM t /*+ OPTIONS(…) */"),
        ("SELECT a FROM t /*+ STATE_TTL('t' = '1 d') */", r"write the hint STATE_TTL after SELECT"),
        ("SELECT a FROM t /*+ OPTIONS('rows-per-second') */", "'key' = 'value' pairs"),
        ("SELECT /*+ BROADCAST(u) */ t.a FROM t JOIN n ON t.a = n.x", "BROADCAST names 'u', and FROM has no table"),
        ("SELECT /*+ LOOKUP('table' = 'm') */ t.a FROM t", "LOOKUP names 'm', and FROM has no table"),
        (
            "WITH q AS (SELECT a FROM t) SELECT * FROM q /*+ OPTIONS('a' = 'b') */",
            "hints can only be applied to tables",
        ),
    ],
)
def test_a_hint_that_would_do_nothing_is_refused_at_its_place(query: str, words: str) -> None:
    with pytest.raises(SqlError) as raised:
        bound(query)
    assert words in raised.value.message and "line 1, column " in raised.value.message


def test_a_misspelt_hint_of_a_sink_is_refused() -> None:
    with pytest.raises(SqlError, match=r"the hint 'OPTOINS' does not exist here. Did you mean 'OPTIONS'"):
        sinks("INSERT INTO o /*+ OPTOINS('a' = 'b') */ SELECT 1, 2")


def test_hints_about_how_to_join_name_tables_and_change_nothing() -> None:
    plain = "t.a FROM t JOIN n ON t.a = n.x"
    hinted = f"SELECT /*+ BROADCAST(n), SHUFFLE_HASH(default_database.t), MULTI_JOIN(t, n) */ {plain}"
    assert plan(hinted) == plan(f"SELECT {plain}")

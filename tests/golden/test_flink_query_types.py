"""Names, types and time attributes of columns match Flink 2.3, and queries that it rejects are rejected.

Flink's answers are in fixtures/planner/flink_query_types.json: the columns of each query, or null if Flink rejects it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.errors import MillstreamError
from millstream.planner.binder import bind_query
from millstream.planner.session import PlannerSession
from millstream.planner.statements import run
from millstream.sql.parser import parse_query, parse_statement

ANSWERS = json.loads((Path(__file__).parent.parent / "fixtures" / "planner" / "flink_query_types.json").read_text())


def columns(query: str) -> list[str] | None:
    """The columns as Flink shows them; None if the query is rejected."""
    session = PlannerSession()
    for table in ANSWERS["tables"]:
        run(parse_statement(table), session)
    try:
        fields = bind_query(parse_query(query), session).schema.fields
    except MillstreamError:
        return None
    return [f"`{each.name}` {each.type}{f' *{each.time.value}*' if each.time else ''}" for each in fields]


@pytest.mark.parametrize("query", ANSWERS["queries"])
def test_columns_match_flinks(query: str) -> None:
    assert columns(query) == ANSWERS["queries"][query]

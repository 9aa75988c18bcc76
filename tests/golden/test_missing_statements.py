"""docs/sql/unsupported.md: each statement of the page is rejected by the source location that its entry names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inputs.project_scripts import script_module

from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError, NotAvailableError, NotYetError, SqlError
from millstream.sql.parser import parse_statements
from millstream.sql.statements import QueryStatement
from millstream.table import StreamTableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "tests" / "golden" / "sql_statements" / "unbound_tables.sql"
PAGES = (
    *("README.md", "ARCHITECTURE.md"),
    *("docs/sql/statements.md", "docs/understand/how-it-runs.md", "docs/start/coming-from-pyflink.md"),
)


sql_missing = script_module("scripts/sql-missing")
SHOWN = [entry for entry in sql_missing.entries() if entry.example]


@pytest.fixture
def t_env() -> Iterator[Any]:
    with jobs_in_memory():
        made = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())
        for statement in TABLES.read_text().split(";\n"):
            if statement.strip():
                made.execute_sql(statement)
        yield made


def test_every_rejection_in_the_source_has_an_entry_and_the_page_is_current() -> None:
    assert sql_missing.unmatched() == []
    assert sql_missing.PAGE.read_text(encoding="utf-8") == sql_missing.page(), "run scripts/sql-missing --write"


def test_an_entry_has_a_statement_or_a_reason_for_none() -> None:
    for entry in sql_missing.entries():
        assert bool(entry.never) != bool(entry.example and entry.title), entry.place


@pytest.mark.parametrize("entry", SHOWN, ids=[entry.title for entry in SHOWN])
def test_a_statement_of_the_page_is_rejected_by_its_source_location(entry: Any, t_env: Any) -> None:
    *before, last = entry.example.split(";\n")
    for statement in before:
        t_env.execute_sql(statement)
    with pytest.raises(MillstreamError) as caught:
        (parsed,) = parse_statements(last)
        if isinstance(parsed, QueryStatement):
            t_env.to_changelog_stream(t_env.sql_query(last))
        else:
            t_env.execute_sql(last)
    assert isinstance(caught.value, NotYetError | NotAvailableError | SqlError)
    words = entry.says or entry.place.split(": ", 1)[1]
    assert re.search(".+".join(map(re.escape, words.split("{}"))), str(caught.value)), str(caught.value)


@pytest.mark.parametrize("page", PAGES)
def test_no_other_page_lists_unsupported_statements(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "MATCH_RECOGNIZE" not in text, f"{page} names what is missing: link docs/sql/unsupported.md"

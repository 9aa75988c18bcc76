"""The program and the queries of docs/operate/queries.md run as printed."""

from __future__ import annotations

from programs.queries_page import run_queries_page

from millstream.common import Row


def test_the_pages_queries_match_its_programs_state() -> None:
    page = run_queries_page("test-queries-page")
    told = page["about"]("memory://test-queries-page", "ann")
    assert told.pop("epoch") >= 1
    assert told == {"clicks": 2, "last": Row(user="ann", at=9, cents=20), "hours": [(0, 3_600_000, 50)]}

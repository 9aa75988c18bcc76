"""Warnings about FIRST_VALUE and LAST_VALUE over rows without an order of their own."""

from __future__ import annotations

import logging

import pytest
from planned import bound, session_with

from millstream.planner.lowering.arrival_order import warn_about_arrival_order
from millstream.planner.passes import optimised
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.relations import Aggregate
from millstream.planner.table_operations import collect


def words(query: str, caplog: pytest.LogCaptureFixture) -> str:
    session = session_with()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for each in relations_of(optimised([collect(bound(query, session), None)], session)):
            if isinstance(each, Aggregate):
                warn_about_arrival_order(each, session)
    return caplog.text


def test_rows_of_a_source_arrive_in_order_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert not words("SELECT b, FIRST_VALUE(a + 1), COUNT(*) FROM t WHERE a > 1 GROUP BY b", caplog)


def test_first_value_over_computed_rows_is_warned_to_depend_on_epochs(caplog: pytest.LogCaptureFixture) -> None:
    counted = "(SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b) q"
    assert "LAST_VALUE of another operator's results" in words(
        f"SELECT b, LAST_VALUE(n) FROM {counted} WHERE n > 1 GROUP BY b", caplog
    )
    joined = "SELECT t.b, FIRST_VALUE(t.a), LAST_VALUE(n.x) FROM t JOIN n ON t.a = n.x GROUP BY t.b"
    assert "FIRST_VALUE and LAST_VALUE of another operator" in words(joined, caplog)
    assert not words(f"SELECT b, MAX(n) FROM {counted} GROUP BY b", caplog)

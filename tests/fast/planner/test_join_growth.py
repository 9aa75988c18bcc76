"""What is told of joins that keep rows for ever, or forget them by the clock; and of windows over a join's times."""

from __future__ import annotations

import logging

import pytest
from planned import bound, plan, session_with

from millstream.errors import SqlError
from millstream.planner.lowering.join_growth import warn_about_growth
from millstream.planner.passes import optimised
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.relations import Join
from millstream.planner.session import PlannerSession
from millstream.planner.table_operations import collect

JOINED = "SELECT t.a, n.y FROM t JOIN n ON t.a = n.x"


def told(query: str, session: PlannerSession, kept_ms: tuple[int | None, int | None] = (None, None)) -> None:
    sinks = optimised([collect(bound(query, session), None)], session)
    join = next(each for each in relations_of(sinks) if isinstance(each, Join))
    warn_about_growth(join, kept_ms, session)


def test_a_join_that_keeps_rows_for_ever_is_told_with_its_growth_and_refused_where_that_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = session_with()
    with caplog.at_level(logging.WARNING):
        told(JOINED, session)
    assert "grows without bound: about" in caplog.text and "row of the right side" in caplog.text
    session.config["millstream.sql.unbounded-joins"] = "refuse"
    with pytest.raises(SqlError, match="for each row of the left side"):
        told(JOINED, session)
    told(JOINED, session, (1_000, 1_000))  # a time-to-live bounds it


def test_rows_that_go_by_the_clock_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        told("SELECT t.a FROM n JOIN t ON t.a = n.x", session_with(), (1_000, None))
    assert "expires rows of its left side by processing time" in caplog.text


def test_a_hint_says_how_long_rows_of_a_table_are_kept() -> None:
    text = plan("SELECT /*+ STATE_TTL('t' = '1 d') */ t.a FROM t JOIN n ON t.a = n.x")
    assert "STATE_TTL options:{left=1 d}" in text
    with pytest.raises(SqlError, match="STATE_TTL of 't' is 'soon'"):
        plan("SELECT /*+ STATE_TTL('t' = 'soon') */ t.a FROM t JOIN n ON t.a = n.x")


def test_a_window_over_the_time_of_a_join_that_keeps_none_is_refused() -> None:
    joined = "WITH j AS (SELECT t.ts AS ts FROM t JOIN n ON t.a = n.x) "
    with pytest.raises(SqlError, match="'ts' comes from a join that drops it"):
        plan(
            f"{joined} SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
            "GROUP BY window_start, window_end"
        )


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("SELECT /*+ STATE_TTL('t' = '1 d') */ a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > 1", "GroupAggregate"),
        ("SELECT /*+ STATE_TTL('q' = '1 d') */ DISTINCT a FROM t AS q", "GroupAggregate"),
        (
            "SELECT /*+ STATE_TTL('t' = '1 d') */ a FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) = 1",
            "Rank",
        ),
        ("SELECT /*+ STATE_TTL('t' = '1 d') */ a, SUM(b) OVER (PARTITION BY a ORDER BY ts) FROM t", "OverAggregate"),
    ],
)
def test_a_hint_says_how_long_groups_and_first_rows_are_kept(query: str, line: str) -> None:
    [told] = [each for each in plan(query).splitlines() if "STATE_TTL" in each]
    assert line in told and "STATE_TTL options:{1 d}" in told


def test_a_hint_is_not_for_the_groups_of_a_query_below() -> None:
    below = "(SELECT a, COUNT(*) AS c FROM t GROUP BY a) AS q"
    text = plan(f"SELECT /*+ STATE_TTL('q' = '1 d') */ c, COUNT(*) FROM {below} GROUP BY c")
    hinted = ["STATE_TTL" in line for line in text.splitlines() if "GroupAggregate" in line]
    assert hinted == [True, False]


def test_a_hint_that_names_no_table_of_its_own_select_is_refused() -> None:
    for query, told in (
        ("SELECT /*+ STATE_TTL('tt' = '1 d') */ a, COUNT(*) FROM t GROUP BY a", "there is t. Did you mean 't'?"),
        ("SELECT /*+ STATE_TTL('t' = '1 d') */ a, COUNT(*) FROM t AS q GROUP BY a", "there is q"),
        ("SELECT /*+ STATE_TTL('m' = '1 d', 't' = '1 d') */ t.a FROM t JOIN n ON t.a = n.x", "there are t, n"),
        ("SELECT /*+ STATE_TTL('t' = '1 d') */ a FROM (SELECT a FROM t GROUP BY a) AS q", "after its own SELECT"),
    ):
        with pytest.raises(SqlError) as refused:
            plan(query)
        assert "FROM has no table or alias of that name" in str(refused.value) and told in str(refused.value)

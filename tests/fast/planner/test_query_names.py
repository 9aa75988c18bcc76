"""Names in queries: how they resolve, and the names of result columns."""

from __future__ import annotations

import pytest
from planned import bound, execute, fields, plan, session_with

from millstream.errors import SqlError
from millstream.planner.catalog import ViewEntry
from millstream.sql.parser import parse_query


def names(query: str) -> list[str]:
    return list(bound(query).schema.names)


def test_columns_have_flinks_names() -> None:
    assert names("SELECT a, a, a + 1, b AS x, r.y.z, 'v' FROM t") == ["a", "a0", "EXPR$2", "x", "z", "EXPR$5"]


def test_a_star_is_all_columns_in_the_order_of_the_definition() -> None:
    assert names("SELECT * FROM t") == ["a", "b", "c", "s", "l", "m", "r", "ts", "k", "d", "p"]


def test_a_star_of_one_table_is_only_its_columns() -> None:
    assert names("SELECT u.*, v.x FROM n AS u, n AS v") == ["x", "y", "x0"]


def test_a_column_can_be_named_by_alias_table_and_path() -> None:
    assert names("SELECT n.x, default_database.n.y, default_catalog.default_database.n.x FROM n") == ["x", "y", "x0"]


def test_an_alias_hides_the_tables_own_name() -> None:
    with pytest.raises(SqlError, match="Table 'n' not found in FROM"):
        bound("SELECT n.x FROM n AS q")


def test_a_table_name_takes_precedence_over_a_column_name() -> None:
    session = session_with("CREATE TABLE r (x STRING, r ROW<x INT>) WITH ('connector' = 'datagen')")
    assert fields("SELECT r.x FROM r", session) == ["x STRING"]
    assert fields("SELECT r.r.x FROM r", session) == ["x INT"]


def test_a_with_table_hides_a_table_and_may_use_earlier_ones() -> None:
    query = "WITH n AS (SELECT a AS q FROM t), w AS (SELECT q + 1 AS v FROM n) SELECT * FROM w"
    assert names(query) == ["v"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x FROM (SELECT x, y AS x FROM n)",
        "SELECT q.x FROM (SELECT x, y AS x FROM n) AS q",
        "SELECT x FROM (SELECT * FROM (SELECT x, y AS x FROM n))",
        "WITH q AS (SELECT x, y AS x FROM n) SELECT x FROM q",
    ],
)
def test_a_duplicate_column_name_is_ambiguous(query: str) -> None:
    with pytest.raises(SqlError, match=r"Column 'x' is ambiguous: .*2 of them"):
        bound(query)


def test_duplicate_names_are_made_unique_in_results_views_and_by_a_list_of_names() -> None:
    assert names("SELECT * FROM (SELECT x, y AS x FROM n)") == ["x", "x0"]
    assert names("SELECT a, b FROM (SELECT x, y AS x FROM n) AS q (a, b)") == ["a", "b"]
    session = session_with("CREATE TABLE u (x INT) WITH ('connector' = 'datagen'); CREATE VIEW w AS SELECT x, x FROM u")
    assert fields("SELECT x0, x FROM w", session) == ["x0 INT", "x INT"]


def test_columns_of_using_are_named_once() -> None:
    assert names("SELECT * FROM n JOIN (SELECT x, y AS z FROM n) AS q USING (x)") == ["x", "y", "z"]


def test_values_and_names_for_them() -> None:
    assert names("VALUES (1, 'a')") == ["EXPR$0", "EXPR$1"]
    assert names("SELECT q.u FROM (VALUES (1, 'a')) AS q (u, w)") == ["u"]


def test_a_view_resolves_names_in_the_catalog_it_was_created_in() -> None:
    session = session_with(
        """
        CREATE TABLE n (x INT) WITH ('connector' = 'datagen');
        CREATE VIEW v AS SELECT x + 1 AS w FROM n;
        CREATE DATABASE d;
        USE d
        """
    )
    assert fields("WITH n AS (SELECT 'no' AS x) SELECT * FROM default_database.v", session) == ["w INT"]


def test_an_error_of_a_broken_view_names_the_view() -> None:
    session = session_with(
        "CREATE TABLE n (x INT) WITH ('connector' = 'datagen'); CREATE VIEW v AS SELECT x FROM n; DROP TABLE n"
    )
    with pytest.raises(SqlError, match=r"in the view `default_catalog`.`default_database`.`v`: Object 'n' not found"):
        bound("SELECT * FROM v", session)


def test_a_view_has_the_columns_of_its_creation() -> None:
    session = session_with("CREATE TABLE n (x INT) WITH ('connector' = 'datagen'); CREATE VIEW v AS SELECT * FROM n")
    execute("ALTER TABLE n ADD (z STRING, y INT FIRST)", session)
    assert fields("SELECT * FROM v", session) == ["x INT"]
    execute("ALTER TABLE n RENAME x TO w", session)
    with pytest.raises(SqlError, match="its query no longer has the column 'x'"):
        bound("SELECT * FROM v", session)


def test_function_names_are_case_insensitive() -> None:
    assert fields("SELECT upper(s), UpPeR(s) FROM t") == ["EXPR$0 STRING", "EXPR$1 STRING"]


def test_unnest_has_elements_keys_values_and_ordinals() -> None:
    assert fields("SELECT e FROM t CROSS JOIN UNNEST(l) AS u (e)") == ["e INT"]
    assert fields("SELECT k1, v1 FROM t, UNNEST(m) AS u (k1, v1)") == ["k1 STRING", "v1 INT"]
    assert fields("SELECT e, o FROM t LEFT JOIN UNNEST(l) WITH ORDINALITY AS u (e, o) ON TRUE") == ["e INT", "o INT"]


def test_options_of_a_hint_reach_the_scan() -> None:
    assert "hints=[[[OPTIONS options:{rows-per-second=5}]]]" in plan(
        "SELECT x FROM n /*+ OPTIONS('rows-per-second'='5') */"
    )


def test_nested_views_that_use_a_column_twice_do_not_grow_exponentially() -> None:
    session = session_with()
    execute("CREATE VIEW v0 AS SELECT a FROM t", session)
    for level in range(1, 30):
        execute(f"CREATE VIEW v{level} AS SELECT a + a AS a FROM v{level - 1} WHERE a > {level}", session)
    assert len(plan("SELECT * FROM v29", session=session)) < 20_000


def test_a_query_nested_too_deeply_is_reported() -> None:
    session = session_with()
    execute("CREATE VIEW v0 AS SELECT a FROM t", session)
    for level in range(1, 400):
        view = ViewEntry(query=parse_query(f"SELECT a FROM v{level - 1}"))
        session.store.add_table(session.path_of([f"v{level}"]), view)
    with pytest.raises(SqlError, match="nested too deeply"):
        bound("SELECT * FROM v399", session)

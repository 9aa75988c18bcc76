"""A comma in FROM is a left-associative join like others, as in Flink: a later join applies to everything on its
left.
"""

from __future__ import annotations

import pytest

from millstream.errors import SqlError
from millstream.sql.parser import parse_query
from millstream.sql.writing import written
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

VIEWS = (
    "CREATE VIEW o AS SELECT * FROM (VALUES (1, ARRAY[10, 20]), (2, ARRAY[20]), (3, ARRAY[30])) AS v(i, arr)",
    "CREATE VIEW d AS SELECT * FROM (VALUES (10, 'ten'), (20, 'twenty'), (40, 'forty')) AS v(id, name)",
    "CREATE VIEW e AS SELECT * FROM (VALUES (1, 20), (9, 40)) AS v(i, id)",
)
RESULTS = {
    "SELECT o.i, x, name FROM o, UNNEST(o.arr) AS t(x) JOIN d ON d.id = x": [
        (1, 10, "ten"),
        (1, 20, "twenty"),
        (2, 20, "twenty"),
    ],
    "SELECT o.i, x, name FROM o, UNNEST(arr) AS t(x) LEFT JOIN d ON d.id = x AND o.i = 1": [
        (1, 10, "ten"),
        (1, 20, "twenty"),
        (2, 20, None),
        (3, 30, None),
    ],
    "SELECT o.i, x, name FROM o, UNNEST(o.arr) AS t(x) RIGHT JOIN d ON d.id = x": [
        (1, 10, "ten"),
        (1, 20, "twenty"),
        (2, 20, "twenty"),
        (None, None, "forty"),
    ],
    "SELECT o.i, name, x FROM o, d CROSS JOIN UNNEST(o.arr) AS t(x) WHERE d.id = 10 AND o.i > 1": [
        (2, "ten", 20),
        (3, "ten", 30),
    ],
    "SELECT o.i, n FROM o, d JOIN LATERAL (SELECT e.id AS n FROM e WHERE e.i = o.i) AS q ON n = d.id": [(1, 20)],
    "SELECT o.i, name FROM o, d JOIN e ON e.i = o.i AND e.id = d.id": [(1, "twenty")],
    # Every row of both is retained, not every row of `d` and `e` for each row of `o`.
    "SELECT o.i, d.id, e.id FROM o, d FULL JOIN e ON e.i = o.i WHERE o.i IS NULL OR e.i IS NOT NULL": [
        (1, 10, 20),
        (1, 20, 20),
        (1, 40, 20),
        (None, None, 40),
    ],
    "SELECT name FROM o, d NATURAL JOIN e": [("twenty",)],
    "SELECT i, d.id FROM d, o JOIN e USING (i) WHERE d.id = 10": [(1, 10)],
    "SELECT o.i, d.id FROM o, (d JOIN e ON d.id = e.id) WHERE o.i = 1": [(1, 20), (1, 40)],
}


@pytest.mark.parametrize("query", RESULTS)
def test_a_join_after_a_comma_applies_to_everything_on_its_left(query: str) -> None:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        for view in VIEWS:
            t_env.execute_sql(view)
        assert sorted((tuple(row) for row in t_env.execute_sql(query).collect()), key=str) == RESULTS[query]


def test_a_name_of_two_tables_before_a_join_is_ambiguous_in_its_condition() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for view in VIEWS:
        t_env.execute_sql(view)
    with pytest.raises(SqlError, match="'i' is ambiguous"):
        t_env.sql_query("SELECT name FROM o, d JOIN e ON i = d.id")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SELECT * FROM a, b JOIN c ON x = y", "SELECT * FROM a CROSS JOIN b INNER JOIN c ON x = y"),
        ("SELECT * FROM a JOIN b ON x = y, c", "SELECT * FROM a INNER JOIN b ON x = y CROSS JOIN c"),
        ("SELECT * FROM a, (b JOIN c ON x = y)", "SELECT * FROM a CROSS JOIN (b INNER JOIN c ON x = y)"),
    ],
)
def test_commas_and_joins_are_read_from_the_left(text: str, meant: str) -> None:
    assert written(parse_query(text)) == written(parse_query(meant))


def test_a_chain_of_commas_and_joins_has_the_same_limit_as_either() -> None:
    parse_query("SELECT 1 FROM t" + ", t CROSS JOIN u" * 90)
    with pytest.raises(SqlError, match="tables"):
        parse_query("SELECT 1 FROM t" + ", t CROSS JOIN u" * 120)

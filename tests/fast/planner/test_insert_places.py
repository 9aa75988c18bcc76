"""Errors of INSERTs point at the part of the statement they are about."""

from __future__ import annotations

import pytest

from millstream.errors import SqlError
from millstream.planner.session import PlannerSession
from millstream.planner.statements import bind_insert, run
from millstream.sql.parser import parse_statement
from millstream.sql.statements import Insert

TABLES = (
    "CREATE TABLE rows_in (n INT, w STRING) WITH ('connector' = 'datagen')",
    "CREATE TABLE `rows out` (a INT NOT NULL, b STRING, c AS a + 1) WITH ('connector' = 'blackhole')",
    "CREATE VIEW seen AS SELECT n FROM rows_in",
)


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("INSERT INTO /* into */ nothing SELECT 1", "nothing"),
        ("INSERT INTO default_catalog.default_database.nothing SELECT 1", "default_catalog.default_database.nothing"),
        ("INSERT INTO seen SELECT 1", "seen"),
        ("INSERT INTO `rows out`\nSELECT n, w,\n n + 1, w FROM rows_in", "n + 1, w"),
        ("INSERT INTO `rows out` SELECT n AS x FROM rows_in", "n AS x"),
        ("INSERT INTO `rows out` SELECT n,\n n > 0, w FROM rows_in", "w"),
        ("INSERT INTO `rows out` SELECT w, w FROM rows_in", "w"),
        ("INSERT INTO `rows out` SELECT *, 1 FROM rows_in", "*, 1"),
        ("INSERT INTO `rows out` (a, d) SELECT n, w FROM rows_in", "d"),
        ("INSERT INTO `rows out` (a, c) SELECT n, w FROM rows_in", "c"),
        ("INSERT INTO `rows out` (a, b, a) SELECT n, w, n FROM rows_in", "a"),
        ("INSERT INTO `rows out` PARTITION (z = 1) SELECT n, w FROM rows_in", "z"),
        ("INSERT INTO `rows out` (b) SELECT w FROM rows_in", "`rows out`"),
        ("INSERT INTO `rows out` VALUES ('one', 'two')", "'one'"),
        ("INSERT INTO `rows out` VALUES (NULL, 'two')", "NULL"),
    ],
)
def test_the_error_points_at_its_part_of_the_statement(statement: str, place: str) -> None:
    session = PlannerSession()
    for text in TABLES:
        run(parse_statement(text), session)
    insert = parse_statement(statement)
    assert isinstance(insert, Insert)
    with pytest.raises(SqlError) as raised:
        bind_insert(insert, session)
    *_, line, marks = str(raised.value).splitlines()
    assert line[marks.index("^") : marks.rindex("^") + 1] == place

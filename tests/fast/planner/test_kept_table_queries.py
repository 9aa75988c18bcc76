"""A table that a job keeps is the result of one query."""

from __future__ import annotations

import pytest
from planned import TABLES, session_with, sinks

from millstream.errors import SqlError

KEPT = f"{TABLES};\nCREATE TABLE kept (x INT, y BIGINT) WITH ('connector' = 'state')"


def test_two_queries_into_one_kept_table_are_refused_and_one_of_both_is_not() -> None:
    session = session_with(KEPT)
    with pytest.raises(SqlError, match="Two INSERTs write to"):
        sinks("INSERT INTO kept SELECT x, y FROM n", "INSERT INTO kept SELECT x, x FROM n", session=session)
    sinks("INSERT INTO kept SELECT x, y FROM n UNION ALL SELECT x, x FROM n", session=session)
    sinks("INSERT INTO o SELECT x, y FROM n", "INSERT INTO o SELECT x, x FROM n", session=session)

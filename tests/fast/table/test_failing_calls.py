"""A row for which an expression or a function fails: the error shows the call as it was written, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.errors import JobFailedError
from millstream.table import DataTypes, EnvironmentSettings, Table, TableEnvironment
from millstream.table.expressions import col, lit
from millstream.table.udf import udf, udtf
from millstream.testing.local_jobs import jobs_in_memory


@udtf(result_types=[DataTypes.INT()])
def parts(n: int, word: str) -> Iterator[int]:
    if n == 3:
        raise ValueError("no threes")
    yield n


@udf(result_type=DataTypes.INT())
def picky(n: int) -> int:
    if n == 3:
        raise ValueError("no threes")
    return n


QUERIES: dict[str, tuple[Callable[[Table], Table], str]] = {
    "table function": (
        lambda table: table.join_lateral(parts(col("n"), col("w")).alias("x")),
        "ValueError: no threes, raised by parts(3, 'b')",
    ),
    "function": (lambda table: table.select(picky(col("n") + 1 - 1)), "picky(n + 1 - 1): the function raised"),
    "cast": (
        lambda table: table.select(col("w").cast(DataTypes.INT())),
        "CAST(w AS INT): the text 'a' is not a valid INT",
    ),
    "division": (lambda table: table.where(lit(1) / (col("n") - 1) > 0), "1 / (n - 1): division by zero"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_the_error_shows_the_call_with_its_name_and_columns(name: str) -> None:
    query, expected = QUERIES[name]
    with jobs_in_memory(), pytest.raises(JobFailedError) as raised:
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        rows: Any = query(t_env.from_elements([(1, "a"), (3, "b")], ["n", "w"])).execute().collect()
        list(rows)
    assert expected in str(raised.value) and "$" not in str(raised.value)

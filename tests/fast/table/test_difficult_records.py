"""Records and data frames that are difficult to convert to tables and back: rejected with advice, or converted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from millstream.common import Row, RowKind, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError, MillstreamError, ProgramError
from millstream.table import DataTypes, StreamTableEnvironment, Table
from millstream.table.expressions import col
from millstream.table.udf import udf
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def env() -> Iterator[StreamExecutionEnvironment]:
    with jobs_in_memory():
        yield StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)


def rows(table: Table) -> list[Any]:
    with table.execute().collect() as results:
        return list(results)


def test_a_delete_is_rejected_in_an_insert_only_table(env: StreamExecutionEnvironment) -> None:
    t_env = StreamTableEnvironment.create(env)
    records = [Row(1), Row.of_kind(RowKind.DELETE, 1)]
    stream = env.from_collection(records, Types.ROW_NAMED(["n"], [Types.INT()]))
    with pytest.raises(JobFailedError, match=r"a row of DELETE.*from_changelog_stream"):
        rows(t_env.from_data_stream(stream))
    changes = rows(t_env.from_changelog_stream(stream))
    assert [row.get_row_kind() for row in changes] == [RowKind.INSERT, RowKind.DELETE]


@pytest.mark.parametrize("value", [(1, 2), {"a": 1}, [1], Row(1, 2), "x", None])
def test_any_record_without_a_type_is_a_single_value(env: StreamExecutionEnvironment, value: Any) -> None:
    t_env = StreamTableEnvironment.create(env)
    [row] = rows(t_env.from_data_stream(env.from_collection([value], Types.PICKLED_BYTE_ARRAY())))
    assert list(row) == [value]


@pytest.mark.parametrize("kind", ["TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"])
def test_a_year_out_of_pythons_range_is_reported(env: StreamExecutionEnvironment, kind: str) -> None:
    t_env = StreamTableEnvironment.create(env)
    moments = (
        "SELECT CAST(TIMESTAMP '1970-01-01 00:00:00' + n AS {}) AS t "
        "FROM (VALUES (INTERVAL '0' DAY), (INTERVAL '2932897' DAY(7))) AS v (n)"
    )
    with pytest.raises(MillstreamError, match=r"10000-01-01 .* is of a year outside the range of Python's datetime"):
        rows(t_env.sql_query(moments.format(kind)))
    first = rows(t_env.sql_query(f"SELECT t FROM ({moments.format(kind)}) WHERE t < TIMESTAMP '9000-01-01 00:00:00'"))
    assert [row[0].replace(tzinfo=None) for row in first] == [dt.datetime(1970, 1, 1)]


def test_a_frame_with_two_columns_of_one_name_is_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ProgramError, match="columns of one name: a"):
        StreamTableEnvironment.create(env).from_pandas(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_batch_function_that_returns_a_single_value_is_an_error_with_advice(env: StreamExecutionEnvironment) -> None:
    five = udf(lambda series: 5, result_type=DataTypes.INT(), func_type="pandas", name="five")
    table = StreamTableEnvironment.create(env).from_elements([(1,), (2,)], ["n"])
    with pytest.raises(JobFailedError, match=r"it returned 5 \(int\); a pandas Series of 2 rows is expected"):
        rows(table.select(five(col("n"))))

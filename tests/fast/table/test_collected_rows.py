"""Collected results equal PyFlink's: how rows print and compare, FLOAT, column names, and tables written into
statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import Row, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeySelector
from millstream.records.text import texts
from millstream.table import DataTypes, StreamTableEnvironment, Table
from millstream.table.expressions import col, lit
from millstream.table.window import Tumble
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def env() -> Iterator[StreamExecutionEnvironment]:
    with jobs_in_memory():
        env = StreamExecutionEnvironment.get_execution_environment()
        yield env.set_parallelism(1)


@pytest.fixture
def t_env(env: StreamExecutionEnvironment) -> StreamTableEnvironment:
    return StreamTableEnvironment.create(env)


@pytest.fixture
def numbers(t_env: StreamTableEnvironment) -> Table:
    return t_env.from_elements([("a", 1), ("b", 2), ("a", 3)], ["k", "v"])


def collect(table: Table) -> list[Any]:
    with table.execute().collect() as rows:
        return list(rows)


def test_a_collected_row_is_printed_and_compared_as_pyflinks_at_every_depth(t_env: StreamTableEnvironment) -> None:
    query = "SELECT 1 AS id, CAST(1.23 AS FLOAT) AS f, ROW('a', CAST(0.1 AS FLOAT)) AS r, ARRAY[ROW(2)] AS many"
    rows = collect(t_env.sql_query(query))
    assert str(rows) == "[<Row(1, 1.23, <Row('a', 0.1)>, [<Row(2)>])>]"
    assert rows == [Row(1, 1.23, Row("a", 0.1), [Row(2)])]
    assert (rows[0].id, rows[0]["f"]) == (1, 1.23), "names can be requested, too"
    assert {each[0] for each in rows} == {1} and set(collect(t_env.sql_query("SELECT 1 AS id"))) == {Row(1)}


def test_a_float_is_the_shortest_equal_decimal_in_every_position(t_env: StreamTableEnvironment) -> None:
    query = (
        "SELECT ARRAY[CAST(1.23 AS FLOAT), NULL], MAP['a', CAST(0.1 AS FLOAT)], CAST(NULL AS FLOAT), "
        "CAST('NaN' AS FLOAT), CAST(3.4028235E38 AS FLOAT), CAST(1.23 AS DOUBLE)"
    )
    [row] = collect(t_env.sql_query(query))
    assert repr(row) == "<Row([1.23, None], {'a': 0.1}, None, nan, 3.4028235e+38, 1.23)>"


FLOATS: dict[str, tuple[Any, Any]] = {
    "alone": (Types.FLOAT(), 1.23),
    "a tuple": (Types.TUPLE([Types.FLOAT(), Types.INT()]), (1.23, 1)),
    "a row": (Types.ROW_NAMED(["a", "b"], [Types.FLOAT(), Types.STRING()]), Row(a=1.23, b="x")),
    "a list": (Types.LIST(Types.FLOAT()), [1.23, 0.1]),
    "an array": (Types.PRIMITIVE_ARRAY(Types.FLOAT()), [1.23, 0.1]),
    "a map": (Types.MAP(Types.STRING(), Types.FLOAT()), {"a": 1.23}),
    "nested": (Types.TUPLE([Types.LIST(Types.TUPLE([Types.FLOAT()]))]), ([(1.23,)],)),
    "a double": (Types.DOUBLE(), 1.23),
}


@pytest.mark.parametrize("name", FLOATS)
def test_a_collected_stream_has_its_input_floats(env: StreamExecutionEnvironment, name: str) -> None:
    type_info, value = FLOATS[name]
    collected_rows = list(env.from_collection([value], type_info).execute_and_collect())
    assert repr(collected_rows) == repr([value])


def test_functions_compute_with_the_exact_value_of_a_float(env: StreamExecutionEnvironment) -> None:
    floats = env.from_collection([1.23], Types.FLOAT())
    assert list(floats.map(repr, Types.STRING()).execute_and_collect()) == ["1.2300000190734863"]


class First(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value[0]


def test_a_keyed_stream_is_collected_as_rows_of_key_and_record(env: StreamExecutionEnvironment) -> None:
    typed = env.from_collection([("a", 1.23)], Types.TUPLE([Types.STRING(), Types.FLOAT()]))
    untyped = env.from_collection([("a", 1)])
    streams = [
        (typed.key_by(lambda pair: pair[0], Types.STRING()), "Row(f0='a', f1=('a', 1.23))"),
        (typed.key_by(First()), "Row(f0='a', f1=('a', 1.23))"),
        (typed.key_by(0), "Row(f0='a', f1=('a', 1.23))"),
        (untyped.key_by(lambda pair: pair[1]), "Row(f0=1, f1=('a', 1))"),
    ]
    for keyed, expected in streams:
        assert repr(keyed.execute_and_collect(limit=1)) == f"[{expected}]"
    assert list(typed.key_by(First()).map(lambda pair: pair).execute_and_collect()) == [("a", pytest.approx(1.23))]


def test_an_instant_has_its_seconds_in_the_text_of_a_stream(t_env: StreamTableEnvironment) -> None:
    moments = t_env.sql_query("SELECT TO_TIMESTAMP_LTZ(0, 3) AS a, TO_TIMESTAMP_LTZ(61500, 3) AS b")
    stream = t_env.to_data_stream(moments)
    rows = list(stream.execute_and_collect())
    assert texts(rows, stream.get_type()) == ["+I[1970-01-01T00:00:00Z, 1970-01-01T00:01:01.500Z]"]


def test_unnamed_aggregates_and_window_bounds_have_flinks_names(numbers: Table) -> None:
    grouped = numbers.group_by(col("k"))

    def names(table: Table) -> list[str]:
        return list(table.get_schema().get_field_names())

    assert names(grouped.select(col("k"), col("v").sum, col("v").max)) == ["k", "EXPR$0", "EXPR$1"]
    assert names(grouped.select(col("v").sum, col("v").max + 1, col("k"))) == ["EXPR$0", "_c1", "k"]
    assert names(grouped.select(col("v").sum, col("v").count.alias("z"), col("v").max)) == ["EXPR$0", "z", "EXPR$2"]
    assert names(numbers.select(col("v").sum, col("k").count)) == ["EXPR$0", "EXPR$1"]
    assert names(numbers.select(col("v") + 1, col("k"), lit(5))) == ["_c0", "k", "_c2"]
    timed = numbers._t_env.sql_query(f"SELECT *, PROCTIME() AS p FROM {numbers}")
    windows = timed.window(Tumble.over(lit(1).hours).on(col("p")).alias("w")).group_by(col("w"), col("k"))
    chosen = windows.select(col("k"), col("w").start, col("v").sum, col("w").end, col("v").max)
    assert names(chosen) == ["k", "EXPR$0", "EXPR$1", "EXPR$2", "EXPR$3"]
    assert sorted(collect(grouped.select(col("k"), col("v").sum)), key=repr) == [Row("a", 4), Row("b", 2)]


def test_a_table_is_written_into_statements_by_its_text(t_env: StreamTableEnvironment, numbers: Table) -> None:
    assert str(numbers) == str(numbers) == "UnnamedTable$0" and "UnnamedTable$0" in t_env.list_tables()
    large = t_env.sql_query("SELECT * FROM %s WHERE v > 1" % numbers)  # noqa: UP031 - as PyFlink's examples write it
    assert set(collect(large)) == {Row("a", 3), Row("b", 2)}
    results = t_env.execute_sql(f"SELECT MAX(v) FROM {large} WHERE k IN (SELECT k FROM {numbers})").collect()
    assert [row[0] for row in results][-1] == 3
    assert t_env.list_temporary_views() == ["UnnamedTable$0", "UnnamedTable$1"]
    assert repr(numbers) == "Table(k STRING, v BIGINT)" and "Unnamed" not in repr(large)
    other = StreamTableEnvironment.create()
    assert str(other.from_elements([(1,)], ["a"])) == "UnnamedTable$0"


def test_an_insert_may_name_a_table_inline(t_env: StreamTableEnvironment, numbers: Table) -> None:
    t_env.execute_sql("CREATE TABLE nowhere (k STRING, v BIGINT) WITH ('connector' = 'blackhole')")
    result = t_env.execute_sql(f"INSERT INTO nowhere SELECT * FROM {numbers}")
    result.wait()
    assert list(result.collect()) == [Row(-1)]


def test_collected_rows_can_be_inserted_into_a_table_and_a_stream_again(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, numbers: Table
) -> None:
    rows = collect(numbers)
    again = t_env.from_elements(
        rows, DataTypes.ROW([DataTypes.FIELD("a", DataTypes.STRING()), DataTypes.FIELD("b", DataTypes.BIGINT())])
    )
    assert again.get_schema().get_field_names() == ["a", "b"] and collect(again) == rows
    typed = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()])
    assert list(env.from_collection(rows, typed).execute_and_collect()) == [Row(k=k, v=v) for k, v in rows]

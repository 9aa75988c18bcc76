"""Results of user-defined functions respect their declared type: its length, and NOT NULL. Errors of an aggregate are
reported with its method and line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.udf import AggregateFunction, udaf, udf, udtf
from millstream.testing.local_jobs import jobs_in_memory

ROWS = "(VALUES 1, 2) AS t(x)"
TEXT3 = DataTypes.VARCHAR(3)
WHOLE = DataTypes.INT().not_null()


class Given(AggregateFunction):
    """Returns a value of any type."""

    def __init__(self, value: Any, result_type: Any) -> None:
        self._value, self._type = value, result_type

    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += 1

    def get_value(self, accumulator: Any) -> Any:
        return self._value

    def get_result_type(self) -> Any:
        return self._type

    def get_accumulator_type(self) -> Any:
        return DataTypes.ARRAY(DataTypes.BIGINT())


class Failing(Given):
    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += len(args[0])  # the line that is reported


@pytest.fixture(scope="module")
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        texts = DataTypes.ARRAY(TEXT3)
        row = DataTypes.ROW(
            [DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.STRING().not_null())]
        )
        scalars = {
            "long": udf(lambda x: "abcdef" if x == 2 else "abc", result_type=TEXT3),
            "absent": udf(lambda x: None if x == 2 else x, result_type=WHOLE),
            "long_inside": udf(lambda x: ["abc", "abcdef"] if x == 2 else [], result_type=texts),
            "absent_inside": udf(lambda x: (x, None) if x == 2 else None, result_type=row),
            "long_series": udf(lambda x: x.map({1: "abc", 2: "abcdef"}), result_type=TEXT3, func_type="pandas"),
            "bytes4": udf(lambda x: b"1234", result_type=DataTypes.VARBINARY(3)),
        }
        for name, function in scalars.items():
            t_env.create_temporary_function(name, function)
        t_env.create_temporary_function("long_rows", udtf(lambda x: [("abcdef",)], result_types=[TEXT3]))
        t_env.create_temporary_function("long_value", udaf(Given("abcdef", TEXT3)))
        t_env.create_temporary_function("absent_value", udaf(Given(None, WHOLE)))
        t_env.create_temporary_function("failing", udaf(Failing(1, DataTypes.INT())))
        yield t_env


def error_of(t_env: TableEnvironment, query: str) -> str:
    with pytest.raises(MillstreamError) as raised, t_env.execute_sql(query).collect() as rows:
        list(rows)
    return str(raised.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("long(x)", "long(x): it returned 'abcdef' of length 6, but declares VARCHAR(3) for (2)"),
        ("absent(x)", "absent(x): it returned None, but declares INT NOT NULL for (2)"),
        ("long_inside(x)", "it returned 'abcdef' of length 6, but declares VARCHAR(3) for (2)"),
        ("absent_inside(x)", "it returned None, but declares STRING NOT NULL for (2)"),
        ("long_series(x)", "it returned 'abcdef' of length 6, but declares VARCHAR(3)"),
        ("bytes4(x)", "it returned b'1234' of length 4, but declares VARBINARY(3)"),
        ("long_value(x)", "the aggregate 'Given': it returned 'abcdef' of length 6, but declares VARCHAR(3)"),
        ("absent_value(x)", "the aggregate 'Given': it returned None, but declares INT NOT NULL"),
    ],
)
def test_a_result_that_breaks_its_declared_type_is_an_error(t_env: TableEnvironment, call: str, words: str) -> None:
    source = "(SELECT x FROM (VALUES 1, 2) AS v(x) GROUP BY x) AS t" if "series" in call else ROWS
    assert words in error_of(t_env, f"SELECT {call} FROM {source}")


def test_a_row_of_a_table_function_that_is_too_long_is_an_error(t_env: TableEnvironment) -> None:
    words = error_of(t_env, f"SELECT y FROM {ROWS}, LATERAL TABLE(long_rows(x)) AS f(y)")
    assert "the table function" in words and "'abcdef' of length 6, but declares VARCHAR(3)" in words


def test_errors_of_an_aggregate_have_the_method_and_its_line(t_env: TableEnvironment) -> None:
    from pathlib import Path

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# the line that is reported"))
    words = error_of(t_env, f"SELECT failing(x) FROM {ROWS}")
    assert "the aggregate 'Failing': accumulate raised TypeError: object of type 'int' has no len()" in words
    assert f"(at {Path(__file__).name}:{line})" in words

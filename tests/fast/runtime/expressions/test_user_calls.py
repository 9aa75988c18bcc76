"""The program's own functions over columns: per row, pandas, Arrow, asynchronous; and what they are told when wrong."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.types import Row
from millstream.errors import ConfigurationError
from millstream.expressions.data_type import DataType
from millstream.expressions.data_types import DataTypes, from_arrow_type
from millstream.expressions.row_expressions import Column, Literal, RowExpression, UserCall
from millstream.expressions.user_functions import CallMode, UserFunction
from millstream.runtime.expressions import user_calls
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.runtime.expressions.kernel import SessionFacts

ROWS = pa.array([1, 2, None], pa.int64())


def results(
    function: Any,
    type_: DataType,
    mode: CallMode = CallMode.PER_ROW,
    column: pa.Array = ROWS,
    input_type: DataType | None = None,
    *more: RowExpression,
    **options: str,
) -> list[Any]:
    input_type = input_type or DataTypes.BIGINT()
    user = UserFunction("fun", function, (type_,), mode=mode)
    facts = SessionFacts(
        options={f"table.exec.async-scalar.{name.replace('_', '-')}": text for name, text in options.items()}
    )
    program = compile_program([UserCall(type_, user, (Column(input_type, 0), *more))], [input_type])
    values: list[Any] = program.run([column], len(column), facts).columns[0].to_pylist()
    return values


def test_a_plain_function_is_called_with_the_values_of_each_row() -> None:
    assert results(lambda value: f"<{value}>", DataTypes.STRING()) == ["<1>", "<2>", "<None>"]


def test_an_object_with_eval_is_called_by_it() -> None:
    class Add:
        def eval(self, value: int | None, amount: int) -> int | None:
            return None if value is None else value + amount

    more = Literal(DataTypes.INT(False), 10)
    assert results(Add(), DataTypes.BIGINT(), CallMode.PER_ROW, ROWS, None, more) == [11, 12, None]


def test_rows_arrive_with_names_and_are_returned_as_tuples_rows_or_dicts() -> None:
    row_type = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.STRING())])
    column = pa.array([{"a": 1, "b": "x"}, None], row_type.arrow)

    def swap(row: Row | None) -> Any:
        return None if row is None else (row.a + 1, row["b"] * 2)

    assert results(swap, row_type, CallMode.PER_ROW, column, row_type) == [{"a": 2, "b": "xx"}, None]
    as_row = results(lambda row: row and Row(a=5, b="y"), row_type, CallMode.PER_ROW, column, row_type)
    assert as_row == [{"a": 5, "b": "y"}, None]


def test_maps_arrive_as_dicts_and_times_as_datetimes() -> None:
    map_type = DataTypes.MAP(DataTypes.STRING(), DataTypes.INT())
    column = pa.array([[("a", 1)], None], map_type.arrow)
    assert results(lambda value: value and value["a"], DataTypes.INT(), CallMode.PER_ROW, column, map_type) == [1, None]
    moments = pa.array([dt.datetime(2020, 1, 2, 3)], pa.timestamp("ms"))
    year: Callable[[dt.datetime], int] = lambda moment: moment.year  # noqa: E731
    assert results(year, DataTypes.INT(), CallMode.PER_ROW, moments, DataTypes.TIMESTAMP(3)) == [2020]


def test_decimals_are_fitted_to_the_declared_scale() -> None:
    assert results(lambda _: Decimal("1.005"), DataTypes.DECIMAL(5, 2)) == [Decimal("1.01")] * 3


def test_a_pandas_function_gets_series_and_constants() -> None:
    def add(series: pd.Series, amount: int) -> pd.Series:
        assert isinstance(series, pd.Series) and amount == 10
        return series + amount

    more = Literal(DataTypes.INT(False), 10)
    assert results(add, DataTypes.BIGINT(), CallMode.PANDAS, ROWS, None, more) == [11, 12, None]


def test_a_pandas_function_gets_large_numbers_beside_nulls_exactly() -> None:
    column = pa.array([2**53 + 1, None, -(2**62) - 1], pa.int64())
    assert results(lambda series: series, DataTypes.BIGINT(), CallMode.PANDAS, column) == column.to_pylist()


@pytest.mark.parametrize(
    ("values", "type_", "dtypes"),
    [
        ([1, 2], DataTypes.BIGINT(), ("int64", "Int64")),
        ([1, 2], DataTypes.TINYINT(), ("int8", "Int8")),
        ([True, False], DataTypes.BOOLEAN(), ("bool", "boolean")),
        ([1.5, 2.5], DataTypes.DOUBLE(), ("float64", "float64")),
    ],
)
def test_a_null_in_the_batch_changes_no_value_of_a_series(
    values: list[Any], type_: DataType, dtypes: tuple[str, str]
) -> None:
    seen: list[str] = []

    def shown(series: pd.Series) -> pd.Series:
        seen.append(str(series.dtype))
        return (~series if dtypes[0] == "bool" else series // 2 + 7).astype(str)

    without, beside = (
        results(shown, DataTypes.STRING(), CallMode.PANDAS, pa.array(column, type_.arrow), type_)
        for column in (values, [*values, None])
    )
    assert beside[:2] == without and tuple(seen) == dtypes


def test_an_arrow_function_gets_and_gives_arrays() -> None:
    assert results(lambda array: pc.multiply(array, 2), DataTypes.BIGINT(), CallMode.ARROW) == [2, 4, None]


def test_an_asynchronous_function_runs_many_rows_at_once_and_keeps_their_order() -> None:
    running = most = 0

    async def ask(value: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1
        return value * 2

    column = pa.array(range(20))
    doubled = results(ask, DataTypes.BIGINT(), CallMode.ASYNC, column, None, max_concurrent_operations="4")
    assert doubled == [2 * value for value in range(20)] and most == 4


def test_an_asynchronous_function_keeps_its_event_loop_from_batch_to_batch() -> None:
    loops: set[int] = set()

    async def watch(value: int) -> int:
        loops.add(id(asyncio.get_running_loop()))
        return value

    user = UserFunction("watch", watch, (DataTypes.BIGINT(),), mode=CallMode.ASYNC)
    program = compile_program(
        [UserCall(DataTypes.BIGINT(), user, (Column(DataTypes.BIGINT(), 0),))], [DataTypes.BIGINT()]
    )
    for _ in range(3):
        program.run([pa.array([1, 2])], 2, SessionFacts())
    assert len(loops) == 1


def test_an_asynchronous_function_that_fails_or_takes_too_long_is_reported_with_its_row() -> None:
    async def fail(value: int | None) -> int:
        if value is None:
            await asyncio.sleep(60)
        if value == 2:
            raise KeyError("two")
        return 1

    with pytest.raises(ExpressionError, match="the function raised KeyError: 'two'") as told:
        results(fail, DataTypes.INT(), CallMode.ASYNC, pa.array([1, 2]), None, retry_delay="1 ms")
    assert told.value.row == 1
    with pytest.raises(ExpressionError, match="TimeoutError") as told:
        results(fail, DataTypes.INT(), CallMode.ASYNC, pa.array([1, None]), None, timeout="10 ms")
    assert told.value.row == 1


@pytest.mark.parametrize(
    ("options", "calls"), [({}, 4), ({"max_attempts": "1"}, 2), ({"retry_strategy": "no_retry"}, 1)]
)
def test_an_asynchronous_call_that_fails_is_repeated_as_flinks_options_say(options: dict[str, str], calls: int) -> None:
    made: list[int] = []

    async def fails_often(value: int) -> int:
        made.append(value)
        if len(made) < calls:
            raise OSError("away")
        return value * 2

    pause = {} if not options else {"retry_delay": "1 ms"}
    assert results(fails_often, DataTypes.BIGINT(), CallMode.ASYNC, pa.array([21]), **pause, **options) == [42]
    assert made == [21] * calls
    made.clear()
    calls += 1
    with pytest.raises(ExpressionError, match="the function raised OSError: away"):
        results(fails_often, DataTypes.BIGINT(), CallMode.ASYNC, pa.array([21]), **pause, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_attempts": "often"}, "max-attempts' is 'often'"),
        ({"retry_strategy": "backoff"}, "expected FIXED_DELAY or NO_RETRY"),
        ({"max_concurrent_operations": "0"}, "at least 1"),
        ({"timeout": "soon"}, "is not a duration"),
    ],
)
def test_an_option_of_asynchronous_calls_that_cannot_be_is_refused(options: dict[str, str], told: str) -> None:
    async def same(value: int) -> int:
        return value

    with pytest.raises(ConfigurationError, match=told):
        results(same, DataTypes.BIGINT(), CallMode.ASYNC, **options)


def test_a_function_that_raises_is_reported_with_its_row_and_cause() -> None:
    def fail(value: int | None) -> int:
        if value == 2:
            raise KeyError("two")
        return 1

    with pytest.raises(
        ExpressionError,
        match=r"fun\(\$0\): the function raised KeyError: 'two' \(at test_user_calls.py:\d+\) for \(2\), in row 1",
    ) as told:
        results(fail, DataTypes.INT())
    assert isinstance(told.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("returned", "type_", "expected"),
    [
        ("x", DataTypes.INT(), "returned 'x' (str), but declares INT; expected an int of 32 bits or None"),
        (2**40, DataTypes.INT(), "expected an int of 32 bits"),
        (float("nan"), DataTypes.BIGINT(), "returned nan (float), but declares BIGINT; expected an int of 64 bits"),
        (1e12, DataTypes.INT(), "returned 1000000000000.0 (float), but declares INT"),
        ([1, "x"], DataTypes.ARRAY(DataTypes.INT()), "returned [1, 'x'] (list), but declares ARRAY<INT>"),
        (5, DataTypes.STRING(), "returned 5 (int), but declares STRING; expected a str or None"),
        ((1,), DataTypes.ROW([DataTypes.INT(), DataTypes.INT()]), "declares ROW<`f0` INT, `f1` INT>"),
    ],
)
def test_a_result_that_is_not_of_the_declared_type_is_named(returned: Any, type_: DataType, expected: str) -> None:
    with pytest.raises(ExpressionError) as told:
        results(lambda _: returned, type_)
    assert expected in str(told.value)


@pytest.mark.parametrize(
    ("returned", "type_", "stored"),
    [
        (2.75, DataTypes.BIGINT(), 2),
        (-2.75, DataTypes.INT(), -2),
        (Decimal("2.75"), DataTypes.SMALLINT(), 2),
        (np.float64(2.5), DataTypes.BIGINT(), 2),
        (True, DataTypes.INT(), 1),
        ([1, 1.5, None], DataTypes.ARRAY(DataTypes.INT()), [1, 1, None]),
        (Decimal("2.75"), DataTypes.DOUBLE(), 2.75),
        (2**40, DataTypes.FLOAT(), float(2**40)),
    ],
)
def test_a_number_of_another_type_is_converted_as_pyflinks_coders_do(
    returned: Any, type_: DataType, stored: Any
) -> None:
    assert results(lambda _: returned, type_) == [stored] * 3


def test_a_fraction_that_is_cut_off_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def half(value: int | None) -> float:
        return (value or 0) / 2

    for _ in range(2):
        assert results(half, DataTypes.BIGINT(), column=pa.array([2, 3])) == [1, 1]
    [notice] = [record.getMessage() for record in caplog.records if "fraction" in record.getMessage()]
    assert "returned 1.5 and declares BIGINT: it is 1" in notice and "test_user_calls.py:" in notice


def test_a_series_of_floats_with_fractions_is_refused_where_whole_numbers_are_declared() -> None:
    with pytest.raises(ExpressionError, match=r"returned a value that is not BIGINT: Float value 1\.50* was truncated"):
        results(lambda column: column / 2, DataTypes.BIGINT(), CallMode.PANDAS, pa.array([2, 3]))


def test_a_row_is_a_data_frame_to_a_function_of_pandas() -> None:
    rows = pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": 3, "b": None}])

    def described(frame: Any) -> Any:
        assert list(frame.columns) == ["a", "b"]
        return frame["a"].fillna(0) + frame["b"].notna()

    row_type = from_arrow_type(rows.type)
    assert results(described, DataTypes.BIGINT(), CallMode.PANDAS, rows, row_type) == [2, 0, 3]
    assert results(described, DataTypes.BIGINT(), CallMode.PANDAS, rows.slice(2, 1), row_type) == [3]


@pytest.mark.parametrize("mode", [CallMode.PANDAS, CallMode.ARROW])
def test_a_batch_of_another_length_is_refused(mode: CallMode) -> None:
    with pytest.raises(ExpressionError, match="it received 3 rows and returned 2"):
        results(lambda column: column[:2], DataTypes.BIGINT(), mode)


def test_a_function_that_raises_stop_iteration_fails_and_ends_no_batch_early() -> None:
    def first_only(value: int | None) -> int:
        if value != 1:
            raise StopIteration
        return value

    with pytest.raises(ExpressionError, match="StopIteration"):
        results(first_only, DataTypes.BIGINT())


@given(st.lists(st.none() | st.integers(-(2**62), 2**62), max_size=20), st.integers(1, 7))
def test_rows_in_pieces_give_what_each_row_gives_alone(numbers: list[int | None], piece: int) -> None:
    def halved(value: int | None) -> int | None:
        return None if value is None or value % 3 == 0 else value // 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_calls, "PIECE_ROWS", piece)
        assert results(halved, DataTypes.BIGINT(), column=pa.array(numbers, pa.int64())) == list(map(halved, numbers))
        texts = results(lambda value: f"<{value}>", DataTypes.STRING(), column=pa.array(numbers, pa.int64()))
        assert texts == [f"<{number}>" for number in numbers]


@pytest.mark.parametrize(("result", "message"), [(None, "ZeroDivisionError"), (2**63, "an int of 64 bits")])
def test_a_row_of_a_later_piece_is_named(monkeypatch: pytest.MonkeyPatch, result: int | None, message: str) -> None:
    monkeypatch.setattr(user_calls, "PIECE_ROWS", 4)

    def fails_at_nine(value: int) -> int:
        if value != 9:
            return value
        return result if result is not None else value // 0

    with pytest.raises(ExpressionError, match=message) as error:
        results(fails_at_nine, DataTypes.BIGINT(), column=pa.array(range(20), pa.int64()))
    assert error.value.row == 9


def test_numbers_come_as_pythons_own() -> None:
    kinds = []
    results(lambda value: kinds.append(type(value)), DataTypes.BIGINT(), column=pa.array([1, 2], pa.int64()))
    fractions = pa.array([1.5], pa.float64())
    results(
        lambda value: kinds.append(type(value)), DataTypes.BIGINT(), CallMode.PER_ROW, fractions, DataTypes.DOUBLE()
    )
    assert kinds == [int, int, float]

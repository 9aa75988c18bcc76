"""Calls user-defined functions over columns: row by row, with pandas Series, with Arrow arrays, or asynchronously.

Functions run in the task's process. Their arguments are as in PyFlink; results are checked against the declared type.
If a function raises, the error reports the row, with the exception as the cause.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from millstream.expressions.row_expressions import UserCall
from millstream.expressions.user_functions import CallMode, UserFunction
from millstream.runtime.expressions.async_calls import AsyncCalls, FailedCall, call_async
from millstream.runtime.expressions.declared_results import first_violation
from millstream.runtime.expressions.kernel import Value
from millstream.runtime.expressions.python_values import ResultMismatch, column_of, python_values
from millstream.runtime.operators.explanations import is_engine_file

__all__ = ["UserCallError", "call_function", "error_text", "series_of"]

PIECE_ROWS = 4096


class UserCallError(Exception):
    """The function raised, or its result does not fit its declaration."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


def call_function(
    call: UserCall, arguments: Sequence[Value], rows: int, options: Mapping[str, str] = MappingProxyType({})
) -> pa.Array:
    """Calls a function and returns its results as a column. The session's `options` configure retries of asynchronous
    calls."""
    function: UserFunction = call.function
    if function.mode is CallMode.PER_ROW:
        column = _by_pieces(call, arguments, rows)
    elif function.mode is CallMode.ASYNC:
        column = _result_column(call, _all_at_once(call, arguments, rows, options))
    else:
        column = _whole_batch(call, arguments, rows)
    if (violation := first_violation(column, call.type)) is not None:
        raise UserCallError(violation[1], violation[0])
    return column


def _result_column(call: UserCall, values: Sequence[Any]) -> pa.Array:
    try:
        return column_of(values, call.type, call.function)
    except ResultMismatch as mismatch:
        raise UserCallError(str(mismatch), mismatch.row) from None


def _by_pieces(call: UserCall, arguments: Sequence[Value], rows: int) -> pa.Array:
    """Converts a limited number of rows at a time: their Python values reuse the memory of the previous piece, so the
    system need not allocate and release memory for every batch."""
    pieces: list[pa.Array] = []
    for start in range(0, max(rows, 1), PIECE_ROWS):
        count = min(PIECE_ROWS, rows - start)
        part = [value if isinstance(value, pa.Scalar) else value.slice(start, count) for value in arguments]
        try:
            pieces.append(_result_column(call, _per_row(call, part, count)))
        except UserCallError as problem:
            problem.row += start
            raise
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _argument_lists(call: UserCall, arguments: Sequence[Value], rows: int) -> list[list[Any]]:
    types = [argument.type for argument in call.arguments]
    return [python_values(value, type_, rows) for value, type_ in zip(arguments, types, strict=True)]


def _per_row(call: UserCall, arguments: Sequence[Value], rows: int) -> list[Any]:
    evaluate = call.function.call
    columns = _argument_lists(call, arguments, rows)
    results: list[Any] = []
    try:
        if not columns:
            results.extend(evaluate() for _ in range(rows))
        else:
            # Extended one by one: on an error, the number of results is the failing row.
            results.extend(map(evaluate, *columns))
    except Exception as error:
        raise UserCallError(_raised_message(error), len(results)) from error
    if len(results) < rows:  # `extend` takes a StopIteration of the function for the end of the iterator
        raise UserCallError(_raised_message(StopIteration("raised by the function itself")), len(results))
    return results


def _all_at_once(call: UserCall, arguments: Sequence[Value], rows: int, options: Mapping[str, str]) -> list[Any]:
    """Calls an asynchronous function for all rows, a bounded number at a time; results are in row order."""
    try:
        return call_async(call.function, _argument_lists(call, arguments, rows), rows, AsyncCalls.of(options))
    except FailedCall as failed:
        assert isinstance(failed.__cause__, Exception)
        raise UserCallError(_raised_message(failed.__cause__), failed.row) from failed.__cause__


def _whole_batch(call: UserCall, arguments: Sequence[Value], rows: int) -> pa.Array:
    """Calls a function of Series or arrays. Constants are passed as Python values."""
    is_pandas = call.function.mode is CallMode.PANDAS
    batch_arguments = [_batch_argument(value, is_pandas) for value in arguments]
    try:
        result = call.function.call(*batch_arguments)
    except Exception as error:
        raise UserCallError(_raised_message(error)) from error
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        noun = "a pandas Series" if is_pandas else "an Arrow array"
        raise UserCallError(f"it returned {result!r} ({type(result).__name__}); {noun} of {rows} rows is expected")
    column = _batch_result(call, result, is_pandas)
    if len(column) != rows:
        noun = "a Series" if is_pandas else "an array"
        raise UserCallError(f"it received {rows} rows and returned {len(column)}; {noun} of as many is expected")
    return column


def _batch_argument(value: Value, is_pandas: bool) -> Any:
    if isinstance(value, pa.Scalar):
        return value.as_py() if is_pandas else value
    return series_of(value) if is_pandas else value


def series_of(value: pa.Array) -> Any:
    """A column as pandas data; rows become a DataFrame of their fields. Integers and booleans with NULLs get pandas'
    nullable types. PyFlink converts them to floats, which changes large integers and makes the type depend on the other
    rows of the batch."""
    if pa.types.is_struct(value.type):
        import pandas as pd

        return pd.DataFrame(dict(zip(value.type.names, map(_series, value.flatten()), strict=True)))
    return _series(value)


def _series(value: pa.Array) -> Any:
    if value.null_count and (pa.types.is_integer(value.type) or pa.types.is_boolean(value.type)):
        return value.to_pandas(types_mapper=_nullable_types().get)
    return value.to_pandas()


@cache
def _nullable_types() -> dict[pa.DataType, Any]:
    import pandas as pd

    whole = {pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype()}
    return {**whole, pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def _batch_result(call: UserCall, result: Any, is_pandas: bool) -> pa.Array:
    """The result as a column of the declared type."""
    expected = call.type.arrow
    try:
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if isinstance(result, pa.Array):
            return result if result.type == expected else result.cast(expected)
        return pa.array(result, expected, from_pandas=is_pandas)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserCallError(f"it returned a value that is not {call.type.nullable()}: {error}") from error


def _is_not_the_programs(filename: str) -> bool:
    return is_engine_file(filename) or filename.startswith((os.path.dirname(os.__file__), "<frozen"))


def _raised_message(error: Exception) -> str:
    return f"the function raised {error_text(error)}"


def error_text(error: Exception, function: Any = None) -> str:
    """The error's message with the line of the user's program that raised it; without one, with the line of the
    function, since its signature does not fit the call."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_not_the_programs(each.filename)]
    code = getattr(function, "__code__", None)
    place = f" (at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    if not frames and code is not None and not _is_not_the_programs(code.co_filename):
        place = f" (at {os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    return f"{type(error).__name__}: {error}{place}"

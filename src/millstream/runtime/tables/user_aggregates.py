"""Kernel for user-defined aggregate functions.

Upstream of the exchange, rows are not aggregated: the arguments of all calls are collected in a list per group, in
arrival order. Downstream of it they are **folded** into the accumulator, a user object, by one loop that calls
`accumulate` or `retract`; the object is stored as a pickle, which only tasks open. `measure.detail` determines the
stored form:

    groups    the accumulator, and its last emitted value: the retraction equals the emitted value
    folded    the accumulator; the function's `merge` combines two
    rows      all rows. Needed for functions of pandas Series, and for overlapping windows without `merge`

The accumulator columns are the rows not folded yet, then accumulator and value, if stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.groups import Groups
from millstream.aggregation.list_kernels import Listed, flat
from millstream.errors import MillstreamError, ProgramError
from millstream.expressions.nested_types import RowType
from millstream.expressions.user_functions import CallMode, UserFunction
from millstream.records.pickling import PicklingError, pickled
from millstream.records.table_type import TableValueType
from millstream.records.unpickling import unpickled
from millstream.runtime.expressions.declared_results import first_violation
from millstream.runtime.expressions.python_values import ResultMismatch, column_of, python_values
from millstream.runtime.expressions.user_calls import error_text, series_of
from millstream.state.keys.hashing import Int64s
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["UserAggregate", "user_functions_of"]


def user_functions_of(measures: Iterable[BoundAggregate]) -> list[Any]:
    """The distinct user functions in measures: they open and close with the operator."""
    functions: list[Any] = []
    for measure in measures:
        user = measure.function if measure.inner is None else measure.inner.function
        if user is not None and not any(user.function is known for known in functions):
            functions.append(user.function)
    return functions


class UserAggregate(Listed):
    """Calls the function of a measure. Its input is one column: a row of the arguments, NULL where a FILTER excludes
    the row."""

    def __init__(self, measure: BoundAggregate) -> None:
        super().__init__(measure)
        row_type, result = measure.arguments[0].type_info, measure.result
        assert isinstance(row_type, TableValueType) and isinstance(row_type.data_type, RowType)
        assert isinstance(result, TableValueType) and isinstance(measure.function, UserFunction)
        self._arguments, self._result_type = row_type.data_type, result.data_type
        self._user = measure.function
        self._function = measure.function.function
        # A call without arguments has one dummy column.
        self._width = measure.n

    # --- rows on their way --------------------------------------------------------------------------------------------

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        rows = columns[0]
        has_row = np.asarray(rows.is_valid()) if rows.null_count else None
        signs = pa.array(np.ones(len(at), dtype=np.int64))
        return self._with_empty_state(self.lists_of_single_rows([signs, rows], has_row, len(at)))

    def signed(self, parts: Parts, signs: Int64s) -> Parts:
        """Rows of single records; deletes have a negative sign."""
        rows, lengths = flat(parts[0])
        signed = pa.array(rows.field(0).to_numpy() * np.repeat(signs, lengths))
        rows = pa.StructArray.from_arrays([signed, rows.field(1)], fields=list(self._row_kind))
        return self._with_empty_state([self._lists(rows, lengths)])

    def _with_empty_state(self, lists: Parts) -> Parts:
        """Rows to fold, with empty state."""
        return [*lists, *(pa.nulls(len(lists[0]), kind) for kind in self.part_kinds[1:])]

    def _order_of_results(self, rows: pa.Array, codes: Int64s, count: int) -> Int64s:
        return np.argsort(codes, kind="stable")

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        if len(parts) == 1 or parts[1].null_count == len(parts[1]):
            return self._with_empty_state(super().combine(parts[:1], groups))
        has_state = np.flatnonzero(np.asarray(parts[1].is_valid()))
        if np.bincount(groups.codes[has_state], minlength=groups.count).max() > 1:
            return self._merged(self.consolidated(parts), groups)
        at = np.full(groups.count, -1, dtype=np.int64)
        at[groups.codes[has_state]] = has_state
        places = pa.array(at, mask=at < 0)
        return [*super().combine(parts[:1], groups), *(part.take(places) for part in parts[1:])]

    # --- the program's calls ------------------------------------------------------------------------------------------

    def consolidated(self, parts: Parts) -> Parts:
        if len(parts) == 1:
            return parts
        rows, lengths = flat(parts[0])
        keeps_values = len(parts) > 2
        is_new = lengths > 0
        if keeps_values:
            is_new |= np.asarray(parts[1].is_null())
        fresh = np.flatnonzero(is_new)
        if not len(fresh):
            return parts
        stored = parts[1].take(pa.array(fresh)).to_pylist()
        accumulators = [self._opened(data) for data in stored]
        self._fold(accumulators, rows, lengths[fresh])
        at = np.zeros(len(lengths), dtype=np.int64)
        at[fresh] = len(lengths) + np.arange(len(fresh))
        at = np.where(is_new, at, np.arange(len(lengths)))
        none = self._lists(rows.slice(0, 0), np.zeros(len(lengths), dtype=np.int64))
        consolidated = [none, _replaced(parts[1], self._pickled(accumulators), at)]
        if keeps_values:
            consolidated.append(_replaced(parts[2], self._values(accumulators), at))
        return consolidated

    def _fold(self, accumulators: Sequence[Any], rows: pa.Array, lengths: Int64s) -> None:
        """Fold the rows into the accumulators, `lengths` rows each, in order."""
        accumulate, retract = self._function.accumulate, self._function.retract
        arguments, signs = self._argument_rows(rows.field(1)), rows.field(0).to_pylist()
        end = sign = 0
        try:
            for accumulator, length in zip(accumulators, lengths.tolist(), strict=True):
                start, end = end, end + length
                # The error report finds the failing row by these local names.
                values = arguments[start:end]
                remaining = iter(values)
                for row, sign in zip(remaining, signs[start:end], strict=True):
                    if sign > 0:
                        accumulate(accumulator, *row)
                    else:
                        retract(accumulator, *row)
        except Exception as error:
            raise self._failed(error, "accumulate" if sign > 0 else "retract") from error

    def _argument_rows(self, rows: pa.Array) -> list[tuple[Any, ...]]:
        if not self._width:
            return [()] * len(rows)
        columns = zip(rows.flatten(), self._arguments.types, strict=True)
        return list(zip(*(python_values(column, type_, len(rows)) for column, type_ in columns), strict=True))

    def _merged(self, parts: Parts, groups: Groups) -> Parts:
        """The accumulators of each group merged into one."""
        by_group: list[list[Any]] = [[] for _ in range(groups.count)]
        for group, data in zip(groups.codes.tolist(), parts[1].to_pylist(), strict=True):
            if data is not None:
                by_group[group].append(data)
        merged: list[bytes | None] = []
        for group_data in by_group:
            if len(group_data) < 2:
                merged.append(group_data[0] if group_data else None)
                continue
            first, *others = map(unpickled, group_data)
            with self._calling("merge"):
                self._function.merge(first, others)
            merged.append(self._pickled([first])[0].as_py())
        none = self._lists(parts[0].flatten().slice(0, 0), np.zeros(groups.count, dtype=np.int64))
        return [none, pa.array(merged, self.part_kinds[1])]

    def _pickled(self, accumulators: Sequence[Any]) -> pa.Array:
        try:
            return pa.array([pickled(each) for each in accumulators], self.part_kinds[1])
        except PicklingError as error:
            raise ProgramError(
                f"the accumulator of the aggregate '{self._user.name}' cannot be stored: {error}. Keep values in it "
                "that can be pickled"
            ) from None

    # --- values -------------------------------------------------------------------------------------------------------

    def results(self, parts: Parts) -> pa.Array:
        parts = self.consolidated(parts)
        if len(parts) > 2:
            return parts[2]
        if len(parts) == 2:
            return self._values([self._opened(data) for data in parts[1].to_pylist()])
        rows, lengths = flat(parts[0])
        if self._user.mode is not CallMode.PER_ROW:
            return self._column(self._values_of_rows(rows.field(1), lengths))
        accumulators = [self._opened(None) for _ in lengths]
        self._fold(accumulators, rows, lengths)
        return self._values(accumulators)

    def _opened(self, data: bytes | None) -> Any:
        if data is not None:
            return unpickled(data)
        with self._calling("create_accumulator"):
            return self._function.create_accumulator()

    @contextmanager
    def _calling(self, method: str) -> Iterator[None]:
        """Report errors raised by a method of the program."""
        try:
            yield
        except Exception as error:
            raise self._failed(error, method) from error

    def _failed(self, error: Exception, method: str) -> Exception:
        """The error to report: the aggregate, its method, and the line."""
        if isinstance(error, MillstreamError):
            return error
        text = error_text(error, getattr(self._function, method, None))
        return ProgramError(f"the aggregate '{self._user.name}': {method} raised {text}")

    def _values(self, accumulators: Sequence[Any]) -> pa.Array:
        with self._calling("get_value"):
            values = [self._function.get_value(each) for each in accumulators]
        column = self._column(values)
        if (broken := first_violation(column, self._result_type)) is not None:
            raise ProgramError(f"the aggregate '{self._user.name}': {broken[1]}")
        return column

    def _values_of_rows(self, rows: pa.Array, lengths: Int64s) -> list[Any]:
        """Calls a function over columns once per group; NULL for an empty group."""
        fields = rows.flatten()[: self._width]
        convert = series_of if self._user.mode is CallMode.PANDAS else (lambda column: column)
        values: list[Any] = []
        ends = np.cumsum(lengths)
        for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True):
            columns = [convert(field.slice(start, end - start)) for field in fields]
            values.append(_plain(self._user.call(*columns)) if end > start else None)
        return values

    def _column(self, values: list[Any]) -> pa.Array:
        try:
            return column_of(values, self._result_type, self._user)
        except ResultMismatch as mismatch:
            raise ProgramError(f"the aggregate '{self._user.name}': {mismatch}") from None


def _plain(value: Any) -> Any:
    """A numpy scalar as a Python value."""
    item = getattr(value, "item", None)
    return item() if isinstance(value, np.generic) and item is not None else value


def _replaced(column: pa.Array, fresh: pa.Array, at: Int64s) -> pa.Array:
    return pa.concat_arrays([column, fresh]).take(pa.array(at))

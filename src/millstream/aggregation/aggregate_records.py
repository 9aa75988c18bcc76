"""The built-in aggregates, a record at a time: the slow reference implementation.

It is the reference for `aggregate_columns`, and is used where data is not columnar: untyped streams, fields of any size
(BIG_INT, BIG_DEC), sessions, evictors, user-defined triggers.

Definitions:

- None is not a value: every kind ignores it, except `count()` without a field, which counts the record. A sum, mean,
  minimum, maximum, first or last of no values is None; a count is 0, a list is empty.
- Sums have the type of their field. BYTE to LONG wrap around as in Java, or fail if strict; FLOAT and DOUBLE are summed
  in 64 bits, in arrival order, so the last bits of a sum may depend on it; BIG_INT, BIG_DEC and DECIMAL are exact.
- The mean is a DOUBLE; integers are summed exactly for it.
- NaN is larger than every number. Of equal values the first counts.
- `first`, `last` and `collect` order by event time, then by arrival; so does `top_n` among equals. Without timestamps,
  they order by arrival.
- `approx_distinct` estimates with a sketch of 4,096 registers (`distinct_sketch`), with an error of about 1.6 %.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np

from millstream.aggregation.distinct_sketch import entries_of_hashes, estimates
from millstream.aggregation.kernels import column_of
from millstream.aggregation.rolling_records import (
    EXACT,
    INTEGER_BITS,
    as_float32,
    overflow_error,
    sorts_before,
    wrapped,
)
from millstream.common.typeinfo import BasicType, TypeInformation, Types
from millstream.common.types import Row
from millstream.errors import ProgramError
from millstream.records.columns import from_record_batch, stream_schema, to_record_batch
from millstream.state.keys.key_columns import key_column
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate, basic_type

__all__ = ["RecordMeasure"]


class RecordMeasure:
    """Computes one measure. `stream_type` is the type of the records, None if they are untyped.

    >>> total = RecordMeasure(BoundAggregate("total", "sum", (AggregateArgument(None, 0),)), None)
    >>> total.result(total.merge(total.add(total.empty(), 2, 0), total.add(total.empty(), 3, 0)))
    5
    """

    def __init__(self, measure: BoundAggregate, stream_type: TypeInformation | None) -> None:
        self.measure = measure
        self._readers = [_reader(argument, measure.kind, stream_type) for argument in measure.arguments]
        self._type = measure.arguments[0].type_info if measure.arguments else None
        self._basic = basic_type(self._type)

    def empty(self) -> Any:
        """The empty accumulator. Accumulators are plain values and are never changed in place."""
        return {"count": 0, "avg": (0, 0), "approx_distinct": {}, "top_n": [], "collect": []}.get(self.measure.kind)

    def add(self, accumulator: Any, record: Any, at: int) -> Any:
        """The accumulator after one more record with time `at`."""
        values = [read(record) for read in self._readers]
        if values and values[0] is None:
            return accumulator
        return self.merge(accumulator, self._accumulator_of(values, at))

    def _accumulator_of(self, values: list[Any], at: int) -> Any:
        kind = self.measure.kind
        if kind == "count":
            return 1
        if kind in ("sum", "min", "max"):
            return values[0]
        if kind == "avg":
            return values[0], 1
        if kind in ("first", "last"):
            return at, values[0]
        if kind == "approx_distinct":
            entry = int(entries_of_hashes(key_column([values[0]], self._type).hashes)[0])
            return {entry >> 6: entry & 63}
        return [(values[0], at, values[-1])] if kind == "top_n" else [(at, values[0])]

    def merge(self, left: Any, right: Any) -> Any:
        """The merged accumulator; `left` is of earlier records."""
        kind = self.measure.kind
        if left is None or right is None:
            return right if left is None else left
        if kind == "count":
            return left + right
        if kind == "sum":
            return self._added(left, right)
        if kind == "avg":
            return self._added(left[0], right[0]), left[1] + right[1]
        if kind == "min":
            return right if sorts_before(right, left) else left
        if kind == "max":
            return right if sorts_before(left, right) else left
        if kind == "first":
            return right if right[0] < left[0] else left
        if kind == "last":
            return right if right[0] >= left[0] else left
        if kind == "approx_distinct":
            return {**left, **{register: max(rank, left.get(register, 0)) for register, rank in right.items()}}
        if kind == "top_n":
            return _largest(left, right, self.measure.n)
        return left + right

    def result(self, accumulator: Any) -> Any:
        """The result of the accumulator."""
        kind = self.measure.kind
        if kind == "sum":
            return None if accumulator is None else self._as_declared(accumulator)
        if kind == "avg":
            return _mean(*accumulator)
        if kind in ("first", "last"):
            return None if accumulator is None else accumulator[1]
        if kind == "approx_distinct":
            counts = np.bincount(list(accumulator.values()), minlength=54)
            return int(estimates(counts.reshape(1, -1))[0])
        if kind == "top_n":
            return [value for _, _, value in accumulator]
        if kind == "collect":
            return [value for _, value in sorted(accumulator, key=lambda timed: timed[0])]
        return accumulator

    def _added(self, left: Any, right: Any) -> Any:
        if isinstance(left, decimal.Decimal) and isinstance(right, decimal.Decimal):
            return EXACT.add(left, right)
        if isinstance(left, str) or isinstance(right, str):
            raise ProgramError(f"{self.measure.kind}: the value is text, expected a number. Map it first")
        return left + right

    def _as_declared(self, total: Any) -> Any:
        if self._basic is BasicType.FLOAT:
            return as_float32(total)
        if self._basic not in INTEGER_BITS:
            return total
        fitting = wrapped(total, self._basic)
        if self.measure.is_strict and fitting != total:
            raise overflow_error(f"sum '{self.measure.name}'", self._basic)
        return fitting


def _reader(argument: AggregateArgument, kind: str, stream_type: TypeInformation | None) -> Callable[[Any], Any]:
    """A function from a record to an argument of the measure."""
    field = argument.field
    if argument.expression is not None:
        assert stream_type is not None, "an expression is over the columns of a typed stream"
        return lambda record: _expressed(argument, record, stream_type)
    if field is None:
        return lambda record: record

    def value(record: Any) -> Any:
        if field == 0 and not isinstance(record, (tuple, list, dict, Row)):
            return record
        try:
            return record[field]
        except (TypeError, KeyError, IndexError, ValueError) as error:
            raise ProgramError(
                f"{kind}({field!r}): the record {record!r} ({type(record).__name__}) has no such field. Name one of "
                "its fields"
            ) from error

    return value


def _expressed(argument: AggregateArgument, record: Any, stream_type: TypeInformation) -> Any:
    assert argument.type_info is not None
    schema = stream_schema(stream_type)
    assert schema is not None
    columns = to_record_batch([record], stream_type).select(schema.names)
    column = column_of(argument, columns)
    tupled = Types.TUPLE([argument.type_info])
    (value,) = from_record_batch(type(columns).from_arrays([column], names=["f0"]), tupled)[0]
    return value


def _largest(left: list[Any], right: list[Any], n: int) -> list[Any]:
    """The n largest of both: descending, then by time, then those of `left` first."""
    merged = list(left)
    for candidate in right:
        place = len(merged)
        while place and _precedes(candidate, merged[place - 1]):
            place -= 1
        merged.insert(place, candidate)
    return merged[:n]


def _precedes(candidate: Any, other: Any) -> bool:
    if sorts_before(other[0], candidate[0]):
        return True
    return not sorts_before(candidate[0], other[0]) and bool(candidate[1] < other[1])


def _mean(total: Any, count: int) -> float | None:
    if not count:
        return None
    if isinstance(total, int):
        # As in the vectorised kernel: the sum is exact and rounded once.
        high, low = divmod(total, 1 << 32)
        total = high * float(1 << 32) + low
    return float(total) / count

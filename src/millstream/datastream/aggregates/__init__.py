"""Built-in aggregates for windows: `count`, `sum`, `min`, `max`, `avg`, `first`, `last`, `approx_distinct`, `top_n`,
`collect` (beyond PyFlink).

    from millstream.datastream import aggregates as agg

    clicks.key_by("ad").window(...).aggregate(agg.Aggregates(clicks=agg.count(), spend=agg.sum("price")))

emits rows (ad, window_start, window_end, clicks, spend). An `Aggregates` is an `AggregateFunction` and can be used in
its place. Where the stream, its key and the windows allow it, the engine runs it vectorised: partially upstream of the
exchange, and downstream in panes that sliding windows share. The result is the same.

The argument of an aggregate is a field by name or position (in a stream of plain values, the value itself), or a
function from the record batch to an Arrow array, with the type of that array.
`millstream.aggregation.aggregate_records` documents the treatment of None, NaN and numbers that are too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from millstream.aggregation.aggregate_records import RecordMeasure
from millstream.aggregation.rolling_columns import rolls_in_columns
from millstream.common.typeinfo import (
    BasicType,
    DecimalTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.types import Row
from millstream.datastream.functions.function import AggregateFunction
from millstream.datastream.functions.window import ProcessWindowFunction
from millstream.datastream.streams.argument_checks import checked_count, checked_output_type, refuse
from millstream.datastream.streams.key_selection import field_position
from millstream.records.columns import arrow_type, holds_pickles
from millstream.records.shapes import plain_type
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate, basic_type

__all__ = [
    "Aggregate",
    "Aggregates",
    "KeyAndBounds",
    "approx_distinct",
    "avg",
    "collect",
    "count",
    "first",
    "last",
    "max",
    "min",
    "sum",
    "top_n",
]

Field = int | str | Callable[[Any], Any]


@dataclass(frozen=True)
class Aggregate:
    """A built-in aggregate, not yet bound to a stream. Created by the functions of this module."""

    kind: str
    fields: tuple[tuple[Field, TypeInformation | None], ...] = ()
    n: int = 0


def _aggregate(kind: str, field: Any, type_info: Any) -> Aggregate:
    return Aggregate(kind, (_checked_field(kind, field, type_info),))


def _checked_field(kind: str, field: Any, type_info: Any) -> tuple[Field, TypeInformation | None]:
    if isinstance(field, bool) or not (isinstance(field, int | str) or callable(field)):
        raise refuse(
            f"{kind}: found {field!r} ({type(field).__name__}), expected a field's name or position, or a function "
            "from the columns to an Arrow array"
        )
    declared = checked_output_type(kind, type_info)
    if callable(field) and declared is None:
        raise refuse(f"{kind}: an expression needs its result type. Pass it second, such as Types.DOUBLE()")
    if callable(field) and declared is not None and holds_pickles(declared):
        raise refuse(f"{kind}: an expression returns an Arrow array, which cannot hold {declared}. Use another type")
    if not callable(field) and declared is not None:
        raise refuse(f"{kind}({field!r}): a field has the type that its stream declares. Omit {declared}")
    return field, declared


def count(field: Field | None = None, type_info: TypeInformation | None = None) -> Aggregate:
    """The number of records; with a field, the number of records in which the field is not None. LONG."""
    return Aggregate("count") if field is None else _aggregate("count", field, type_info)


def sum(field: Field = 0, type_info: TypeInformation | None = None) -> Aggregate:
    """The sum of a field, in the field's type: BYTE to LONG wrap around, FLOAT and DOUBLE add up in 64 bits."""
    return _aggregate("sum", field, type_info)


def min(field: Field = 0, type_info: TypeInformation | None = None) -> Aggregate:
    """The smallest value of a field."""
    return _aggregate("min", field, type_info)


def max(field: Field = 0, type_info: TypeInformation | None = None) -> Aggregate:
    """The largest value of a field; NaN is larger than every number."""
    return _aggregate("max", field, type_info)


def avg(field: Field = 0, type_info: TypeInformation | None = None) -> Aggregate:
    """The mean of a field. DOUBLE."""
    return _aggregate("avg", field, type_info)


def first(field: Field = 0, type_info: TypeInformation | None = None) -> Aggregate:
    """The value of the record with the earliest event time; of several, the first to arrive."""
    return _aggregate("first", field, type_info)


def last(field: Field = 0, type_info: TypeInformation | None = None) -> Aggregate:
    """The value of the record with the latest event time; of several, the last to arrive."""
    return _aggregate("last", field, type_info)


def approx_distinct(field: Field = 0, type_info: TypeInformation | None = None) -> Aggregate:
    """The approximate number of distinct values of a field, with a standard error of 1.6 %. LONG; up to 4 KiB of
    state."""
    return _aggregate("approx_distinct", field, type_info)


def top_n(n: int, by: Field = 0, field: Field | None = None, type_info: TypeInformation | None = None) -> Aggregate:
    """The `field` of the n records with the largest `by`, in descending order; without `field`, the values of `by`.

    If `by` or `field` is an expression, `type_info` is its type; for two expressions, pass a TUPLE of both types.
    """
    checked_count("top_n", n)
    by_type, field_type = type_info, type_info
    if callable(by) and callable(field) and isinstance(type_info, TupleTypeInfo):
        by_type, field_type = type_info.get_field_types()
    arguments = [_checked_field("top_n", by, by_type if callable(by) else None)]
    if field is not None:
        arguments.append(_checked_field("top_n", field, field_type if callable(field) else None))
    return Aggregate("top_n", tuple(arguments), n)


def collect(field: Field = 0, type_info: TypeInformation | None = None) -> Aggregate:
    """All values of a field as a list, in event-time order. Its state grows with the number of records."""
    return _aggregate("collect", field, type_info)


class Aggregates(AggregateFunction):
    """Several named built-in aggregates, computed together.

    `with_key`: results are rows of the key, `window_start` and `window_end` (ms, exclusive) and the aggregates; without
    it, or with a window function on top, rows of the aggregates only. The key's field has its name in the stream, or
    `key` if it has no name.

    >>> both = Aggregates(clicks=count(), spend=sum("price"))
    >>> accumulator = both.create_accumulator()
    >>> for price in (3, 4):
    ...     accumulator = both.add({"price": price}, accumulator)
    >>> both.get_result(accumulator)
    Row(clicks=2, spend=7)
    """

    def __init__(self, *, with_key: bool = True, **aggregates: Aggregate) -> None:
        if not aggregates:
            raise refuse(
                "Aggregates: found none, expected at least one. Write Aggregates(clicks=count(), spend=sum('price'))"
            )
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise refuse(
                    f"Aggregates: {name} is {aggregate!r}, expected an aggregate such as count() or sum('price')"
                )
        self.with_key = with_key
        self._aggregates = aggregates
        self._bind(None, tuple(_untyped(name, aggregate) for name, aggregate in aggregates.items()))

    def _bind(self, stream_type: TypeInformation | None, measures: tuple[BoundAggregate, ...]) -> None:
        self.measures, self._stream_type = measures, stream_type
        self._records = [RecordMeasure(measure, stream_type) for measure in measures if _can_run(measure, stream_type)]
        self._row = Row(*(measure.name for measure in measures))

    def bound(self, stream_type: TypeInformation | None) -> Aggregates:
        """The same aggregates bound to a stream type: with its field positions and declared number types."""
        bound = Aggregates(with_key=self.with_key, **self._aggregates)
        measures = self.measures
        if stream_type is not None:
            measures = tuple(_typed(*named, stream_type) for named in self._aggregates.items())
        elif len(self._records) < len(measures):
            raise refuse(
                "Aggregates: an expression needs columns, but the stream is untyped. Declare output_type= on the "
                "operator before"
            )
        bound._bind(stream_type, measures)
        return bound

    def strict(self) -> Aggregates:
        """A copy in which an overflowing sum is an error."""
        strict = Aggregates(with_key=self.with_key, **self._aggregates)
        strict._bind(self._stream_type, tuple(replace(measure, is_strict=True) for measure in self.measures))
        return strict

    def result_type(self, key: tuple[str, TypeInformation | None] | None) -> TypeInformation | None:
        """The type of the results; None if a field is untyped. `key` is the name and type of the key, if included."""
        names = [measure.name for measure in self.measures]
        types = [measure.result_type if measure.is_typed else None for measure in self.measures]
        if self.with_key:
            bounds = ["window_start", "window_end"]
            front = bounds if key is None else [key[0], *bounds]
            clashes = sorted(set(front) & set(names))
            if clashes:
                raise refuse(f"Aggregates: {clashes[0]!r} is also another field of the result. Use another name")
            names = front + names
            types = [*([] if key is None else [key[1]]), Types.LONG(), Types.LONG(), *types]
        columnar = [type_info for type_info in types if type_info is not None and arrow_type(type_info) is not None]
        return Types.ROW_NAMED(names, columnar) if len(columnar) == len(names) else None

    # --- one record at a time -------------------------------------------------------------------------------

    def create_accumulator(self) -> list[Any]:
        return [record.empty() for record in self._records]

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        """Adds `value` to the accumulator, in order of arrival. An operator that knows the event time calls
        `add_at`."""
        return self.add_at(value, None, accumulator)

    def add_at(self, value: Any, timestamp: int | None, accumulator: list[Any]) -> list[Any]:
        """Adds `value`, with event time `timestamp`, to the accumulator."""
        at = 0 if timestamp is None else timestamp
        return [record.add(before, value, at) for record, before in zip(self._records, accumulator, strict=True)]

    def get_result(self, accumulator: list[Any]) -> Row:
        results = [record.result(part) for record, part in zip(self._records, accumulator, strict=True)]
        return self._row(*results)

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return [record.merge(a, b) for record, a, b in zip(self._records, acc_a, acc_b, strict=True)]


class KeyAndBounds(ProcessWindowFunction[Any, Any, Any, Any]):
    """Prepends the key (unless `key_name` is None) and the window's bounds to a row of aggregates."""

    def __init__(self, key_name: str | None, names: tuple[str, ...]) -> None:
        front = ("window_start", "window_end") if key_name is None else (key_name, "window_start", "window_end")
        self._has_key = key_name is not None
        self._row = Row(*front, *names)

    def process(self, key: Any, context: Any, elements: Iterable[Row]) -> Iterable[Row]:
        window = context.window()
        bounds = (getattr(window, "start", None), getattr(window, "end", None))
        for row in elements:
            yield self._row(*((key, *bounds) if self._has_key else bounds), *row)


# --- binding to a stream ------------------------------------------------------------------------------------------


def _can_run(measure: BoundAggregate, stream_type: TypeInformation | None) -> bool:
    return stream_type is not None or all(argument.expression is None for argument in measure.arguments)


def _untyped(name: str, aggregate: Aggregate) -> BoundAggregate:
    arguments = tuple(
        AggregateArgument(declared, expression=field) if callable(field) else AggregateArgument(None, field)
        for field, declared in aggregate.fields
    )
    return BoundAggregate(name, aggregate.kind, arguments, aggregate.n)


def _typed(name: str, aggregate: Aggregate, stream_type: TypeInformation) -> BoundAggregate:
    arguments = tuple(
        _typed_argument(aggregate.kind, field, declared, stream_type) for field, declared in aggregate.fields
    )
    if arguments:
        _check_kind(aggregate.kind, arguments[0])
    return BoundAggregate(name, aggregate.kind, arguments, aggregate.n)


def _typed_argument(
    kind: str, field: Field, declared: TypeInformation | None, stream_type: TypeInformation
) -> AggregateArgument:
    if callable(field):
        return AggregateArgument(declared, expression=field)
    if isinstance(plain_type(stream_type), RowTypeInfo | TupleTypeInfo):
        position, field_type = field_position(kind, field, stream_type)
        return AggregateArgument(field_type, position)
    if field != 0:
        raise refuse(f"{kind}({field!r}): a record of {stream_type} is a single value, which is its field 0")
    return AggregateArgument(stream_type)


def _check_kind(kind: str, argument: AggregateArgument) -> None:
    """Rejects impossible aggregates. Aggregates without a vectorised implementation run a record at a time."""
    type_info = argument.type_info
    assert type_info is not None
    basic, arrow = basic_type(type_info), arrow_type(type_info)
    subject = "an expression" if argument.expression is not None else "a field"
    is_exact = isinstance(plain_type(type_info), DecimalTypeInfo) or basic in (BasicType.BIG_INT, BasicType.BIG_DEC)
    if kind in ("sum", "avg") and arrow is not None and not is_exact and not rolls_in_columns("sum", arrow):
        raise refuse(f"{kind}: found {subject} of {type_info}, expected a number. Map it to a number first")
    ordered = basic is not None or arrow is None or rolls_in_columns("min", arrow)
    if kind in ("min", "max", "top_n") and not ordered:
        raise refuse(
            f"{kind}: {subject} of {type_info} cannot be ordered. Use a number, a string or a time, or write an "
            "AggregateFunction"
        )
    if kind == "approx_distinct" and isinstance(plain_type(type_info), MapTypeInfo):
        raise refuse(f"{kind}: {subject} of {type_info} cannot be hashed. Use one of its entries")

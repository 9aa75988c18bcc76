"""Built-in aggregates of a stream: `Aggregates` over its windows, and rolling aggregates of a keyed stream's field.

An `Aggregates` is bound to the stream's type; results have the key and the window bounds before the aggregates. Without
a window function on top, the engine recognises it (`graph.nodes: ReadyAggregates`) and may vectorise it. The functions
defined here, one that folds records and one that creates rows, return the same results one record at a time. An
operator with access to a record's time calls `add_at(value, timestamp, accumulator)` instead of `add`, so that `first`,
`last`, `top_n` and `collect` also use event time there.

A rolling aggregation requires a field that can be added or compared; others are rejected at the user's line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.datastream.aggregates import Aggregates, KeyAndBounds
from millstream.datastream.streams.argument_checks import refuse
from millstream.datastream.streams.key_selection import field_position
from millstream.graph.field_key import FieldKey, OneKey
from millstream.graph.nodes import ReadyAggregates, RollingField
from millstream.graph.site import refuse_type
from millstream.records.batch import is_typed
from millstream.records.shapes import plain_type

if TYPE_CHECKING:
    from millstream.datastream.streams.keyed_stream import KeyedStream

__all__ = ["BoundAggregates", "bound_aggregates", "rolling_field"]


@dataclass(frozen=True)
class BoundAggregates:
    """The aggregates of a stream, the function that adds key and bounds, and their built-in equivalent."""

    aggregates: Aggregates
    front: KeyAndBounds | None
    ready: ReadyAggregates


def bound_aggregates(stream: KeyedStream, aggregates: Aggregates) -> BoundAggregates:
    """Binds the aggregates to this stream."""
    stream_type = stream._stream_type()
    bound = aggregates.bound(stream_type if is_typed(stream_type) else None)
    key = _key_of(stream)
    names = tuple(measure.name for measure in bound.measures)
    front = KeyAndBounds(None if key is None else key[0], names) if bound.with_key else None
    has_key = bound.with_key and key is not None
    return BoundAggregates(
        bound, front, ReadyAggregates(bound.measures, has_key, bound.with_key, bound.result_type(key))
    )


def _key_of(stream: KeyedStream) -> tuple[str, TypeInformation | None] | None:
    """The name of the key in results, and its type; None if all records have the same key."""
    edge = stream._edges[0]
    if isinstance(edge.key_selector, OneKey):
        return None
    stream_type = stream._stream_type()
    plain = None if stream_type is None else plain_type(stream_type)
    field = edge.key_selector.field if isinstance(edge.key_selector, FieldKey) else None
    if isinstance(plain, RowTypeInfo) and plain.has_own_names and isinstance(field, int):
        return plain.get_field_names()[field], edge.key_type
    return field if isinstance(field, str) else "key", edge.key_type


_NUMBERS = (
    BasicType.BYTE,
    BasicType.SHORT,
    BasicType.INT,
    BasicType.LONG,
    BasicType.FLOAT,
    BasicType.DOUBLE,
    BasicType.BIG_INT,
    BasicType.BIG_DEC,
)
_TIMES = (Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP())


def rolling_field(kind: str, field: Any, stream_type: TypeInformation | None) -> RollingField:
    """The operation of `kind` (sum, min, max, min_by, max_by) over a field of the stream's records."""
    if isinstance(field, bool) or not isinstance(field, int | str):
        raise refuse_type(f"{kind}: found {field!r} ({type(field).__name__}), expected a field's position or name")
    if stream_type is None:
        return RollingField(kind, field)
    position, field_type = _field_of(kind, field, stream_type)
    plain = plain_type(field_type)
    if not isinstance(plain, PickledBytesTypeInfo):
        basic = plain.basic_type if isinstance(plain, BasicTypeInfo) else None
        if not isinstance(plain, DecimalTypeInfo):
            _check_kind(kind, field, field_type, basic, plain in _TIMES)
    return RollingField(kind, position)


def _field_of(kind: str, field: int | str, stream_type: TypeInformation) -> tuple[int, TypeInformation]:
    if isinstance(plain_type(stream_type), RowTypeInfo | TupleTypeInfo):
        return field_position(kind, field, stream_type)
    if field != 0:
        raise refuse(f"{kind}({field!r}): a record of {stream_type} is a single value, which is its field 0")
    return 0, stream_type


def _check_kind(kind: str, field: int | str, field_type: TypeInformation, basic: BasicType | None, time: bool) -> None:
    if kind == "sum" and basic not in _NUMBERS:
        raise refuse(f"sum({field!r}): found a field of {field_type}, expected a number. Map it to a number first")
    if kind != "sum" and basic is None and not time:
        raise refuse(
            f"{kind}({field!r}): fields of {field_type} cannot be ordered. Use a number, a string or a time, or "
            "reduce()"
        )

"""Which operation a rolling aggregation of a field becomes: in columns where the field's type allows it, else a
reduction one record at a time. What can never work is refused at the user's line."""

from __future__ import annotations

from typing import Any

from millstream.aggregation.rolling_columns import rolls_in_columns
from millstream.aggregation.rolling_records import FieldReduce
from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.datastream.streams.argument_checks import refuse
from millstream.datastream.streams.key_selection import field_position
from millstream.graph.nodes import Reduce, Rolling
from millstream.records.columns import arrow_type
from millstream.records.shapes import plain_type

__all__ = ["rolling_operation"]

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
# Columns of these hold an encoding that neither adds nor compares as the values do.
_ENCODED = (BasicType.BIG_INT, BasicType.BIG_DEC, BasicType.INSTANT)


def rolling_operation(kind: str, field: Any, stream_type: TypeInformation | None) -> Rolling | Reduce:
    """The operation of `kind` (sum, min, max, min_by, max_by) over a field of the stream's records."""
    if isinstance(field, bool) or not isinstance(field, int | str):
        raise refuse(f"{kind}: found {field!r} ({type(field).__name__}), expected a field's position or name")
    if stream_type is None:
        return Reduce(FieldReduce(kind, field))
    position, field_type = _field_of(kind, field, stream_type)
    plain = plain_type(field_type)
    if isinstance(plain, PickledBytesTypeInfo):
        return Reduce(FieldReduce(kind, position))
    basic = plain.basic_type if isinstance(plain, BasicTypeInfo) else None
    _check_kind(kind, field, field_type, basic, plain in _TIMES)
    arrow = arrow_type(field_type)
    if basic not in _ENCODED and arrow is not None and rolls_in_columns(kind, arrow):
        return Rolling(kind, position)
    return Reduce(FieldReduce(kind, position, basic))


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
            f"{kind}({field!r}): fields of {field_type} have no order here. Choose a number, a text or a time, or use "
            "reduce()"
        )

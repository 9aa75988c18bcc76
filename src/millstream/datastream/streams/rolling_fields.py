"""Rolling aggregations of a field: which field it is, and whether it can be added up or compared at all. What can never
work is refused at the user's line."""

from __future__ import annotations

from typing import Any

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
from millstream.graph.nodes import RollingField
from millstream.records.shapes import plain_type

__all__ = ["rolling_field"]

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
        raise refuse(f"{kind}: found {field!r} ({type(field).__name__}), expected a field's position or name")
    if stream_type is None:
        return RollingField(kind, field)
    position, field_type = _field_of(kind, field, stream_type)
    plain = plain_type(field_type)
    if not isinstance(plain, PickledBytesTypeInfo):
        basic = plain.basic_type if isinstance(plain, BasicTypeInfo) else None
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
            f"{kind}({field!r}): fields of {field_type} have no order here. Choose a number, a text or a time, or use "
            "reduce()"
        )

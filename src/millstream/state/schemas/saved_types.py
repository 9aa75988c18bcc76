"""The stored form of declared types: plain JSON from which the type is restored.

Arrow's types in a segment are ambiguous: a TUPLE and a ROW are both structs, a decimal is a string, a large number is
bytes. The manifest therefore stores the type of each state's values as the program declared it:

    "LONG"   "DATE"   "BYTES"   "PICKLED"   "DECIMAL(10, 2)"
    {"row": [["word", "STRING"], ["count", "LONG"]]}   {"tuple": [...]}   {"list": ...}   {"map": [key, value]}
    {"sql": ["DECIMAL", true, 10, 2]}, the types of columns of tables (`saved_sql_types`)

Types with the same Python values are written alike: an array is a list, a wrapper is its wrapped type, and every
pickled type is "PICKLED". Invariant: `type_from(written_type(t))` is written like `t`.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.errors import ProgramError, StoreDamagedError
from millstream.records.columns import arrow_type
from millstream.records.shapes import is_byte_array, is_sequence, plain_type
from millstream.records.table_type import TableValueType
from millstream.state.schemas.saved_sql_types import sql_type_from, written_sql_type

__all__ = ["shown_types", "type_from", "type_of_arrow", "written_type"]

_TIMES: dict[str, TypeInformation] = {
    "DATE": Types.SQL_DATE(),
    "TIME": Types.SQL_TIME(),
    "TIMESTAMP": Types.SQL_TIMESTAMP(),
}
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_PICKLED = "PICKLED"


def written_type(type_info: TypeInformation | None) -> Any:
    """The type as JSON.

    >>> written_type(Types.ROW_NAMED(["n", "tags"], [Types.LONG(), Types.BASIC_ARRAY(Types.STRING())]))
    {'row': [['n', 'LONG'], ['tags', {'list': 'STRING'}]]}
    """
    if type_info is None or arrow_type(type_info) is None:
        return _PICKLED
    plain = plain_type(type_info)
    if isinstance(plain, TableValueType):
        return {"sql": written_sql_type(plain.data_type)}
    if isinstance(plain, BasicTypeInfo):
        return plain.basic_type.name
    if isinstance(plain, DecimalTypeInfo):
        return plain.notation
    if isinstance(plain, RowTypeInfo):
        named = zip(plain.get_field_names(), plain.get_field_types(), strict=True)
        return {"row": [[name, written_type(field)] for name, field in named]}
    if isinstance(plain, TupleTypeInfo):
        return {"tuple": [written_type(field) for field in plain.get_field_types()]}
    if is_byte_array(plain):
        return "BYTES"
    if is_sequence(plain):
        return {"list": written_type(plain.element_type)}
    if isinstance(plain, MapTypeInfo):
        return {"map": [written_type(plain.key_type), written_type(plain.value_type)]}
    return next(name for name, time in _TIMES.items() if time == plain)


def type_from(written: Any, subject: str) -> TypeInformation:
    """The inverse of `written_type`; StoreDamagedError naming `subject` for anything else.

    >>> type_from({"map": ["STRING", {"list": "LONG"}]}, "state 'total'").notation
    'MAP<STRING, LIST<LONG>>'
    """
    try:
        return _type_from(written)
    except (AttributeError, KeyError, TypeError, ValueError, ProgramError, RecursionError) as error:
        raise StoreDamagedError(
            f"{subject} was saved as {written!r}, which is not a type. Was the manifest written by another Millstream?"
        ) from error


def _type_from(written: Any) -> TypeInformation:
    if isinstance(written, str):
        if written == _PICKLED:
            return Types.PICKLED_BYTE_ARRAY()
        if written == "BYTES":
            return _BYTES
        if match := re.fullmatch(r"DECIMAL\((\d+), (\d+)\)", written):
            return Types.DECIMAL(int(match[1]), int(match[2]))
        return _TIMES[written] if written in _TIMES else _basic(BasicType[written])
    [(kind, parts)] = written.items()
    if kind == "row":
        return Types.ROW_NAMED([name for name, _ in parts], [_type_from(field) for _, field in parts])
    if kind == "tuple":
        return Types.TUPLE([_type_from(field) for field in parts])
    if kind == "list":
        return Types.LIST(_type_from(parts))
    if kind == "map":
        key, value = parts
        return Types.MAP(_type_from(key), _type_from(value))
    if kind == "sql":
        return TableValueType(sql_type_from(parts))
    raise ValueError(kind)


def _basic(basic: BasicType) -> TypeInformation:
    return Types.INSTANT() if basic is BasicType.INSTANT else BasicTypeInfo(basic)


def type_of_arrow(field: pa.Field) -> TypeInformation:
    """The most likely declared type of a column, for states whose manifest lacks it.

    >>> type_of_arrow(pa.field("value", pa.list_(pa.int32()))).notation
    'LIST<INT>'
    """
    mark = (field.metadata or {}).get(b"millstream.type", b"").decode()
    kind = field.type
    if mark:
        return _type_from(mark)
    t = pa.types
    if t.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        types = [type_of_arrow(inner) for inner in fields]
        names = [inner.name for inner in fields]
        return Types.TUPLE(types) if names == [f"f{at}" for at in range(len(names))] else Types.ROW_NAMED(names, types)
    if t.is_map(kind):
        return Types.MAP(type_of_arrow(kind.key_field), type_of_arrow(kind.item_field))
    if t.is_list(kind):
        return Types.LIST(type_of_arrow(kind.value_field))
    if t.is_decimal128(kind):
        return Types.DECIMAL(kind.precision, kind.scale)
    plain = (
        (t.is_boolean, Types.BOOLEAN()),
        (t.is_int8, Types.BYTE()),
        (t.is_int16, Types.SHORT()),
        (t.is_int32, Types.INT()),
        (t.is_int64, Types.LONG()),
        (t.is_float32, Types.FLOAT()),
        (t.is_float64, Types.DOUBLE()),
        (t.is_string, Types.STRING()),
        (t.is_date, Types.SQL_DATE()),
        (t.is_time, Types.SQL_TIME()),
        (t.is_timestamp, Types.SQL_TIMESTAMP()),
    )
    return next((type_info for is_kind, type_info in plain if is_kind(kind)), _BYTES)


def shown_types(old: TypeInformation, new: TypeInformation) -> tuple[str, str]:
    """Two types as shown in errors: as their columns, or as declared if the columns are the same.

    >>> shown_types(Types.LONG(), Types.STRING()), shown_types(Types.CHAR(), Types.STRING())
    (('int64', 'string'), ('CHAR', 'STRING'))
    """
    columns = [arrow_type(one) for one in (old, new)]
    if columns[0] == columns[1]:
        return old.notation, new.notation
    was, now = ("pickles" if column is None else str(column) for column in columns)
    return was, now

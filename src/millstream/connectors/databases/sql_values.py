"""Values for a database: statement parameters, and the text of a value.

The client library accepts most values unchanged. An INSTANT becomes a datetime in UTC (databases store microseconds;
finer digits are truncated), bytes stay bytes, and a ROW, TUPLE or MAP within a record becomes JSON text. A LIST is an
array in PostgreSQL and JSON text elsewhere.

`text_of` writes single values in PostgreSQL's text format: the reference for `copy_text`, which does the same for whole
columns, and used for nested values, which have no column type.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millstream.common.time import Instant
from millstream.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.errors import ProgramError
from millstream.records.columns import arrow_type, from_record_batch, holds_pickles, stream_schema
from millstream.records.shapes import is_byte_array, is_sequence, plain_type

__all__ = ["array_text", "checked_fields", "column_values", "is_array", "is_json", "json_text", "row_values", "text_of"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def checked_fields(type_info: TypeInformation | None, subject: str) -> tuple[list[str], list[TypeInformation]]:
    """Names and types of the fields of records that are rows of a table."""
    plain = plain_type(type_info) if type_info is not None else None
    if isinstance(plain, RowTypeInfo):
        names, types = plain.get_field_names(), plain.get_field_types()
    elif isinstance(plain, TupleTypeInfo):
        types = plain.get_field_types()
        names = [f"f{i}" for i in range(len(types))]
    else:
        raise ProgramError(
            f"{subject} needs records with fields, found {'records without a type' if plain is None else plain}. "
            "Declare a ROW before it: .map(..., output_type=Types.ROW_NAMED([names], [types]))"
        )
    for name, field_type in zip(names, types, strict=True):
        if arrow_type(field_type) is None or holds_pickles(field_type):
            raise ProgramError(
                f"{subject}: field {name!r} has a type without a database equivalent ({field_type}). Declare another"
            )
    return list(names), list(types)


def element_type(type_info: TypeInformation) -> TypeInformation | None:
    """The type of the elements of a list; None for any other type, and for bytes."""
    plain = plain_type(type_info)
    return plain.element_type if is_sequence(plain) and not is_byte_array(plain) else None


def is_array(type_info: TypeInformation) -> bool:
    """Whether values are lists, except bytes."""
    return element_type(type_info) is not None


def is_json(type_info: TypeInformation) -> bool:
    """Whether values become JSON text."""
    return isinstance(plain_type(type_info), (RowTypeInfo, TupleTypeInfo, MapTypeInfo))


def column_values(column: pa.Array, type_info: TypeInformation) -> list[Any]:
    """The Python values of a column of this type."""
    schema = stream_schema(Types.ROW([type_info]))
    batch = pa.RecordBatch.from_arrays([column.cast(schema.field(0).type)], schema=schema)  # type: ignore[union-attr]
    return [row[0] for row in from_record_batch(batch, Types.ROW([type_info]))]


def row_values(columns: pa.RecordBatch, types: list[TypeInformation], *, arrays: bool) -> list[tuple[Any, ...]]:
    """The rows as parameters for a client library; `arrays`: lists stay lists, for a database with array types."""
    parameters = []
    for column, type_info in zip(columns.columns, types, strict=True):
        values, convert = column_values(column, type_info), _converter(type_info, arrays)
        parameters.append(values if convert is None else [None if v is None else convert(v) for v in values])
    return list(zip(*parameters, strict=True)) if parameters else [()] * columns.num_rows


def _converter(type_info: TypeInformation, arrays: bool) -> Callable[[Any], Any] | None:
    plain = plain_type(type_info)
    if is_json(plain) or (is_array(plain) and not arrays):
        return json_text
    element = element_type(plain)
    if element is not None:
        inner = _converter(element, arrays)
        return None if inner is None else lambda value: [None if v is None else inner(v) for v in value]
    return moment if plain == Types.INSTANT() else None


def moment(instant: Instant) -> dt.datetime:
    """An instant as a datetime in UTC, truncated to microseconds."""
    return _EPOCH + dt.timedelta(seconds=instant.seconds, microseconds=instant.nanos // 1000)


def json_text(value: Any) -> str:
    """A nested value as JSON: a Row as an object, a tuple as a list, exact numbers and times as text.

    >>> json_text(Row(a=1, b=[Decimal("1.50")]))
    '{"a": 1, "b": ["1.50"]}'
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: _plain(part) for name, part in value.as_dict().items()}
    if isinstance(value, dict):
        return {key if isinstance(key, str) else text_of(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else text_of(value)


def text_of(value: Any) -> str:
    """A value, not None, as PostgreSQL reads it.

    >>> text_of(True), text_of(b"\\x01"), text_of(Decimal("1E+3"))
    ('true', '\\\\x01', '1E+3')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, (float, Decimal)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + value.hex()
    if isinstance(value, Instant):
        return moment(value).isoformat(" ")
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, list):
        return array_text(value)
    return json_text(value)


def array_text(values: list[Any]) -> str:
    """A list as PostgreSQL reads an array.

    >>> array_text([1, None, 'a "b"'])
    '{"1",NULL,"a \\\\"b\\\\""}'
    """
    return "{" + ",".join(map(_element_text, values)) + "}"


def _element_text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return array_text(value)
    text = text_of(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'

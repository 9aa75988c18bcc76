"""PostgreSQL's column types as Millstream types, and parsing of the text that PostgreSQL writes for values.

A snapshot (COPY) and the log (pgoutput) use the same text for a value, and both are parsed here, so both yield equal
rows. Arrow converts whole columns; arrays, JSON for a declared ROW or MAP, and whole numbers beyond 64 bits are
converted one by one. Invalid text is an error that shows it. PostgreSQL has values that no column of ours can hold
('infinity' as a date, years BC): these are errors too, never approximated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import BasicType, BasicTypeInfo, DecimalTypeInfo, TypeInformation, Types
from millstream.connectors.databases.sql_values import column_values, element_type, is_json
from millstream.connectors.files.values import json_converter
from millstream.connectors.foreign_columns import inward
from millstream.connectors.messages.text_columns import finish_of_text
from millstream.errors import TypeMismatchError
from millstream.records.bounded_numbers import bounded_decimal
from millstream.records.columns import arrow_type, stream_schema, to_record_batch
from millstream.records.shapes import is_byte_array, plain_type

__all__ = ["type_of_column", "typed_batch", "typed_column"]

_TYPES = {
    "smallint": Types.SHORT(),
    "integer": Types.INT(),
    "bigint": Types.LONG(),
    "real": Types.FLOAT(),
    "double precision": Types.DOUBLE(),
    "boolean": Types.BOOLEAN(),
    "date": Types.SQL_DATE(),
    "time without time zone": Types.SQL_TIME(),
    "timestamp without time zone": Types.SQL_TIMESTAMP(),
    "timestamp with time zone": Types.INSTANT(),
    "bytea": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "numeric": Types.BIG_DEC(),
}
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_PRECISION_MAX = 38


def type_of_column(declared: str) -> TypeInformation:
    """The type for a column of PostgreSQL's type; STRING, the value's text, for any other type.

    >>> [type_of_column(text).notation for text in ("integer", "numeric(12,2)", "uuid", "text[]")]
    ['INT', 'DECIMAL(12, 2)', 'STRING', 'LIST<STRING>']
    """
    if declared.endswith("[]"):
        return Types.LIST(type_of_column(declared[:-2]))
    numeric = _NUMERIC.fullmatch(declared)
    if numeric is not None:
        precision, scale = int(numeric[1]), int(numeric[2])
        return Types.DECIMAL(precision, scale) if scale <= precision <= _PRECISION_MAX else Types.BIG_DEC()
    # The precision of times, as in timestamp(3), does not change the type.
    return _TYPES.get(re.sub(r"\(\d+\)", "", declared), Types.STRING())


def typed_batch(texts: list[pa.Array], names: list[str], types: list[TypeInformation], subject: str) -> pa.RecordBatch:
    """Columns of strings as a batch of the stream ROW(names, types)."""
    schema = stream_schema(Types.ROW_NAMED(names, types))
    columns = [
        typed_column(column, type_info, f"{subject}, column {name!r}")
        for column, name, type_info in zip(texts, names, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def typed_column(texts: pa.Array, type_info: TypeInformation, subject: str) -> pa.Array:
    """Converts strings of PostgreSQL to values of a type, in the layout of a stream."""
    plain = plain_type(type_info)
    if plain in (Types.STRING(), Types.CHAR()):
        return texts
    try:
        return _in_columns(texts, plain)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    convert = _converter(plain)
    values = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else convert(text))
        except (ValueError, KeyError, pa.ArrowInvalid) as error:
            raise TypeMismatchError(
                f"{subject}: found {text!r}, expected {plain}. Declare another type for it (STRING accepts any value)",
                value=text,
            ) from error
    try:
        return to_record_batch([(value,) for value in values], Types.ROW([type_info])).column(0)
    except TypeMismatchError as error:
        raise TypeMismatchError(f"{subject}: {error.message}", value=error.value, path=error.path) from error


def _in_columns(texts: pa.Array, plain: TypeInformation) -> pa.Array:
    """The vectorised fast path; ArrowInvalid if the type has none, or if a value does not fit."""
    if isinstance(plain, BasicTypeInfo):
        if plain.basic_type is BasicType.BOOLEAN:
            if not pc.all(pc.is_in(texts, pa.array(["t", "f", None], pa.string()))).as_py():
                raise pa.ArrowInvalid("neither true nor false")
            return pc.equal(texts, "t")
        if plain.basic_type is BasicType.BIG_DEC:
            return texts
        if plain.basic_type is BasicType.INSTANT:
            moments = texts.cast(pa.timestamp("us", "UTC"))
            row = Types.ROW([plain])
            return inward(pa.RecordBatch.from_arrays([moments], names=["f0"]), row, "").column(0)
        if plain.basic_type is BasicType.BIG_INT:
            raise pa.ArrowInvalid("unbounded integers have no column type")
    if is_byte_array(plain):
        return pa.array([None if text is None else _bytes(text) for text in texts.to_pylist()], pa.binary())
    if isinstance(plain, DecimalTypeInfo):
        return _decimals(texts, plain)
    if plain == Types.SQL_TIME():
        days = pc.binary_join_element_wise("1970-01-01", texts, " ")
        return days.cast(pa.timestamp("us")).cast(pa.time64("us"))
    if element_type(plain) is not None or is_json(plain):
        raise pa.ArrowInvalid("nested values have no column type")
    return texts.cast(arrow_type(plain))


def _decimals(texts: pa.Array, plain: DecimalTypeInfo) -> pa.Array:
    finish = finish_of_text(plain)
    assert finish is not None, "decimals have columns"
    doubt = np.zeros(len(texts), np.bool_)
    column = finish(texts, doubt)
    if doubt.any():  # Arrow's own cast changes a number with too many digits
        raise pa.ArrowInvalid("a decimal in another format")
    return column


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise pa.ArrowInvalid(f"{text!r} is not a bytea")
    return bytes.fromhex(text[2:])


def _converter(plain: TypeInformation) -> Callable[[str], Any]:
    """The converter from one string to a Python value: the reference for `_in_columns`, and used for nested values."""
    element = element_type(plain)
    if element is not None:
        # PostgreSQL has no separate type for nested arrays.
        while (inner := element_type(element)) is not None:
            element = inner
        of_element = _converter(plain_type(element))
        return lambda text: _walk(_array(text), of_element)
    if is_json(plain):
        of_json = json_converter(plain)
        assert of_json is not None, "nested values are converted"
        return lambda text: of_json(json.loads(text))
    if is_byte_array(plain):
        return _bytes
    if plain == Types.BIG_INT():
        return int
    if plain == Types.BOOLEAN():
        return lambda text: {"t": True, "f": False}[text]
    if plain == Types.BIG_DEC() or isinstance(plain, DecimalTypeInfo):
        return bounded_decimal
    if plain in (Types.STRING(), Types.CHAR()):
        return str

    return lambda text: column_values(_in_columns(pa.array([text], pa.string()), plain), plain)[0]


def _walk(values: list[Any], convert: Callable[[str], Any]) -> list[Any]:
    return [None if v is None else _walk(v, convert) if isinstance(v, list) else convert(v) for v in values]


_ARRAY_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)|([{},])', re.DOTALL)


def _array(text: str) -> list[Any]:
    """Parses PostgreSQL's text format of an array into lists of strings.

    >>> _array('{1,NULL,"a,\\\\"b",{}}')
    ['1', None, 'a,"b', []]
    """
    stack: list[list[Any]] = [[]]
    for match in _ARRAY_TOKEN.finditer(text[text.index("{") :] if "{" in text else text):
        quoted, bare, mark = match.groups()
        if mark == "{":
            stack.append([])
        elif mark == "}":
            finished = stack.pop()
            stack[-1].append(finished)
        elif quoted is not None:
            stack[-1].append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        elif bare is not None:
            stack[-1].append(None if bare == "NULL" else bare)
    if len(stack) != 1 or len(stack[0]) != 1 or not isinstance(stack[0][0], list):
        raise ValueError(f"{text!r} is not an array")
    return stack[0][0]

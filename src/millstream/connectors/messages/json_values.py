"""JSON documents of a declared type, one at a time: how they are read and written.

This is the reference. `json_reading` and `json_writing` are the vectorised equivalents and must return the same values.

Reading follows Flink in its strict mode: a missing or null field is None, a field that the type lacks is dropped, and
the last of repeated fields counts. Numbers are never read from strings, nor whole numbers from fractions. A DECIMAL
takes its digits from the document, not from a floating-point number. Dates and times are ISO 8601, with a space or a T
between them and with or without a zone (SQL and ISO-8601 of Flink's options); a timestamp with a zone is its UTC time.

Writing equals Flink's schema: decimals as numbers, bytes in base 64, timestamps and times of day with a 'Z',
NaN and the infinities as text. Written documents are read back as the same values.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.connectors.files.csv_text import field_text
from millstream.connectors.files.parts import plain_json
from millstream.connectors.files.values import NumberText, json_converter
from millstream.records.columns import as_declared
from millstream.records.shapes import is_byte_array, is_sequence, plain_type
from millstream.records.text import texts

__all__ = ["NESTING_MAX", "JsonDocuments", "Writer", "holds_decimals", "json_writer", "parse", "quoted"]

NESTING_MAX = 400
"""Maximum nesting of lists and objects: more is an attack, and Python's own limit varies."""

Writer = Callable[[Any], str]

# The decoder that `json.loads` creates anew for each document.
_PLAIN, _EXACT = json.JSONDecoder(), json.JSONDecoder(parse_float=NumberText)
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def parse(message: bytes | str, is_exact: bool = False) -> Any:
    """The document's Python value. `is_exact`: fractions retain their digits (`NumberText`).

    >>> parse(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    if len(message) > NESTING_MAX and _brackets(message) > NESTING_MAX:
        _check_nesting(message)
    return (_EXACT if is_exact else _PLAIN).decode(message if isinstance(message, str) else _text(message))


def _text(message: bytes) -> str:
    return message.decode(json.detect_encoding(message), "surrogatepass")


def _brackets(message: bytes | str) -> int:
    if isinstance(message, str):
        return message.count("[") + message.count("{")
    return message.count(b"[") + message.count(b"{")


def _check_nesting(message: bytes | str) -> None:
    text = message if isinstance(message, str) else _text(message)
    depth = 0
    for letter in re.findall(r"[\[\]{}]", _STRINGS.sub("", text)):
        depth += 1 if letter in "[{" else -1
        if depth > NESTING_MAX:
            raise ValueError(f"its lists and objects are nested deeper than {NESTING_MAX}")


class JsonDocuments:
    """Documents of a type.

    >>> documents = JsonDocuments(Types.ROW_NAMED(["ad", "price"], [Types.STRING(), Types.DECIMAL(5, 2)]))
    >>> documents.read(b'{"price": 1.50, "ad": "x"}')
    Row(ad='x', price=Decimal('1.50'))
    """

    def __init__(self, type_info: TypeInformation, fail_on_missing_field: bool = False) -> None:
        self.type_info = type_info
        self.fails_on_missing_field = fail_on_missing_field
        json_converter(type_info, fail_on_missing_field)  # rejects a type that JSON cannot hold
        self._is_exact = holds_decimals(type_info)

    def value(self, message: bytes) -> Any:
        """The message's value, before its type check. Raises ValueError."""
        document = parse(message, self._is_exact)
        convert = json_converter(self.type_info, self.fails_on_missing_field)
        return document if convert is None else convert(document)

    def read(self, message: bytes) -> Any:
        """The message's value of the type. Raises ValueError, TypeMismatchError or RecursionError."""
        return as_declared([self.value(message)], self.type_info)[0]

    def write(self, value: Any) -> bytes:
        """The document of a value of the type."""
        return json_writer(self.type_info)(as_declared([value], self.type_info)[0]).encode()


@lru_cache(maxsize=256)
def holds_decimals(type_info: TypeInformation) -> bool:
    """Whether any part of the type is a decimal, whose digits come from the text of a document."""
    plain = plain_type(type_info)
    if isinstance(plain, RowTypeInfo | TupleTypeInfo):
        return any(map(holds_decimals, plain.get_field_types()))
    if is_sequence(plain):
        return holds_decimals(plain.element_type)
    if isinstance(plain, MapTypeInfo):
        return holds_decimals(plain.value_type)
    if isinstance(plain, BasicTypeInfo):
        return plain.basic_type is BasicType.BIG_DEC
    return isinstance(plain, DecimalTypeInfo)


def quoted(text: str) -> str:
    """A string as JSON.

    >>> quoted('grüße "x"')
    '"grüße \\\\"x\\\\""'
    """
    return json.dumps(text, ensure_ascii=False)


def _number(text: str) -> str:
    """A number as JSON: NaN and infinities as text."""
    return text if text[-1].isdigit() else quoted(text)


@lru_cache(maxsize=256)
def json_writer(type_info: TypeInformation) -> Writer:
    """The writer of values of the type, including None.

    >>> json_writer(Types.LIST(Types.DOUBLE()))([1.5, None, float("inf")])
    '[1.5,null,"Infinity"]'
    """
    write = _present_writer(plain_type(type_info))
    return lambda value: "null" if value is None else write(value)


def _present_writer(plain: TypeInformation) -> Writer:
    if isinstance(plain, BasicTypeInfo):
        return _basic_writer(plain)
    if isinstance(plain, DecimalTypeInfo):
        return str
    if isinstance(plain, RowTypeInfo):
        return _object_writer(plain)
    if isinstance(plain, TupleTypeInfo):
        parts = [json_writer(field) for field in plain.get_field_types()]
        return lambda value: f"[{','.join([write(part) for write, part in zip(parts, value, strict=True)])}]"
    if is_byte_array(plain):
        return lambda value: quoted(base64.b64encode(value).decode())
    if is_sequence(plain):
        element = json_writer(plain.element_type)
        return lambda value: f"[{','.join(map(element, value))}]"
    if isinstance(plain, MapTypeInfo):
        return _map_writer(plain)
    if isinstance(plain, PickledBytesTypeInfo):
        return lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain_json)
    if plain == Types.SQL_DATE():
        return lambda value: quoted(value.isoformat())
    return lambda value: quoted(value.isoformat() + "Z")


def _basic_writer(plain: BasicTypeInfo) -> Writer:
    basic = plain.basic_type
    if basic in (BasicType.STRING, BasicType.CHAR):
        return quoted
    if basic in (BasicType.FLOAT, BasicType.DOUBLE):
        return lambda value: _number(texts([value], plain)[0])
    if basic is BasicType.BOOLEAN:
        return lambda value: "true" if value else "false"
    if basic is BasicType.INSTANT:
        return lambda value: quoted(texts([value], plain)[0])
    return lambda value: _number(str(value))


def _object_writer(plain: RowTypeInfo) -> Writer:
    heads = [f"{quoted(name)}:" for name in plain.get_field_names()]
    fields = [json_writer(field) for field in plain.get_field_types()]

    def write(row: Any) -> str:
        cells = zip(heads, fields, row, strict=True)
        return f"{{{','.join([head + field(cell) for head, field, cell in cells])}}}"

    return write


def _map_writer(plain: MapTypeInfo) -> Writer:
    # JSON keys are strings, regardless of the map's key type.
    key_type, item = plain.key_type, json_writer(plain.value_type)

    def write(value: Any) -> str:
        pairs = [f"{quoted(field_text(key, key_type, ';', ''))}:{item(part)}" for key, part in value.items()]
        return f"{{{','.join(pairs)}}}"

    return write

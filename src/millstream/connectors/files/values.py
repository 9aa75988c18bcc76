"""Converts text in CSV and JSON to Python values of a type.

Text formats have fewer types than ours: dates, decimals, bytes and rows are strings, numbers and objects. A converter
is built once per type. It raises ValueError for text that is not a value of its type and never guesses: no '1.5' for an
INT, no 'yes' for a BOOLEAN.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from millstream.common.time import Instant
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
from millstream.errors import ProgramError
from millstream.records.bounded_numbers import bounded_decimal
from millstream.records.shapes import is_byte_array, is_sequence, plain_type

__all__ = ["Converter", "NumberText", "json_converter", "text_converter"]

Converter = Callable[[Any], Any]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FRACTION = re.compile(r"\.(\d+)")
_INTEGERS = (BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT)


class NumberText(float):
    """A fraction in a JSON document that retains its digits: its string form is the original text.

    >>> str(NumberText("0.10000000000000000001")), NumberText("0.5") + 1
    ('0.10000000000000000001', 1.5)
    """

    def __new__(cls, text: str) -> NumberText:
        number = super().__new__(cls, text)
        number._text = text
        return number

    _text: str

    def __str__(self) -> str:
        return self._text


def _integer(text: str) -> int:
    # Only Python accepts underscores in numbers.
    try:
        return int("" if "_" in text else text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _fraction(text: str) -> float:
    try:
        return float("" if "_" in text else text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered == "true"


def _decimal(text: Any) -> Decimal:
    return bounded_decimal(str(text))


def _timestamp(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(_iso(text))
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _instant(text: str) -> Instant:
    moment = dt.datetime.fromisoformat(_iso(text))
    since = (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - _EPOCH
    digits = _FRACTION.search(text)
    nanos = int(digits[1][:9].ljust(9, "0")) if digits else 0
    return Instant(since.days * 86_400 + since.seconds, nanos)


def _iso(text: str) -> str:
    # Python 3.10 parses neither 'Z' nor a fraction with other than three or six digits.
    text = text.strip().replace("Z", "+00:00").replace("z", "+00:00")
    head, dot, tail = text.partition(".")
    if not dot:
        return text
    digits = next((i for i, letter in enumerate(tail) if not letter.isdigit()), len(tail))
    return f"{head}.{tail[:digits][:6].ljust(6, '0')}{tail[digits:]}"


def _time(text: str) -> dt.time:
    # Flink also appends a 'Z' to times of day.
    return dt.time.fromisoformat(_iso(text).removesuffix("+00:00"))


def _date(text: str) -> dt.date:
    return dt.date.fromisoformat(text.strip())


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_FROM_TEXT: dict[BasicType, Converter] = {
    BasicType.FLOAT: _fraction,
    BasicType.DOUBLE: _fraction,
    BasicType.BOOLEAN: _boolean,
    BasicType.BIG_DEC: _decimal,
    BasicType.INSTANT: _instant,
}


def _json_fraction(value: Any) -> Any:
    """Converts a number; JSON writes NaN and infinities as text."""
    if type(value) is NumberText:
        return float(value)
    return float(value) if value in _NO_NUMBERS else value


def _with_floats(value: Any) -> Any:
    """The value with every NumberText replaced by a float."""
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return float(value) if type(value) is NumberText else value


_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_FROM_JSON: dict[BasicType, Converter] = {
    BasicType.FLOAT: _json_fraction,
    BasicType.DOUBLE: _json_fraction,
    BasicType.BIG_DEC: _decimal,
    BasicType.INSTANT: _instant,
}


def _temporal(type_info: TypeInformation) -> Converter | None:
    return {Types.SQL_DATE(): _date, Types.SQL_TIME(): _time, Types.SQL_TIMESTAMP(): _timestamp}.get(type_info)


def text_converter(type_info: TypeInformation, array_separator: str = ";") -> Converter | None:
    """The converter from the text of a CSV field to a value of the type; None when the text is the value.

    >>> text_converter(Types.LIST(Types.INT()))("1;2")
    [1, 2]
    """
    plain = plain_type(type_info)
    if isinstance(plain, BasicTypeInfo):
        if plain.basic_type in (BasicType.STRING, BasicType.CHAR):
            return None
        return _integer if plain.basic_type in _INTEGERS else _FROM_TEXT[plain.basic_type]
    if isinstance(plain, DecimalTypeInfo):
        return _decimal
    if is_byte_array(plain):
        return _bytes
    if is_sequence(plain):
        inner = _part_converter(plain.element_type, array_separator, type_info)
        return lambda text: _split_text(text, array_separator, inner)
    if isinstance(plain, (RowTypeInfo, TupleTypeInfo)):
        inners = [_part_converter(field, array_separator, type_info) for field in plain.get_field_types()]
        return lambda text: _split_row(text, array_separator, inners)
    temporal = _temporal(plain)
    if temporal is None:
        raise ProgramError(f"A CSV field cannot hold {type_info}. Use JSON or Parquet, or read it as STRING.")
    return temporal


def _part_converter(type_info: TypeInformation, separator: str, whole: TypeInformation) -> Converter | None:
    """The converter of one element of a field. Elements cannot be nested: the separators would be ambiguous."""
    plain = plain_type(type_info)
    if is_sequence(plain) or isinstance(plain, (RowTypeInfo, TupleTypeInfo)):
        raise ProgramError(
            f"A CSV field cannot hold {whole}: its elements are nested. Use JSON or Parquet, or read it as STRING."
        )
    return text_converter(type_info, separator)


def _split_row(text: str, separator: str, inners: list[Converter | None]) -> tuple[Any, ...]:
    pieces = text.split(separator)
    if len(pieces) != len(inners):
        raise ValueError(f"{text!r} has {len(pieces)} parts between {separator!r}, expected {len(inners)}")
    return tuple(
        piece if inner is None else inner(piece) if piece else None for piece, inner in zip(pieces, inners, strict=True)
    )


def _split_text(text: str, separator: str, inner: Converter | None) -> list[Any]:
    pieces = text.split(separator) if text else []
    return pieces if inner is None else [inner(piece) for piece in pieces]


@lru_cache(maxsize=256)
def json_converter(type_info: TypeInformation, fail_on_missing_field: bool = False) -> Converter | None:
    """The converter from a parsed JSON value to a value of the type; None when no conversion is needed.

    >>> json_converter(Types.ROW_NAMED(["day", "n"], [Types.SQL_DATE(), Types.INT()]))({"n": 1, "day": "2024-02-29"})
    (datetime.date(2024, 2, 29), 1)
    """
    plain = plain_type(type_info)
    if isinstance(plain, BasicTypeInfo):
        return _nullable(_FROM_JSON.get(plain.basic_type))
    if isinstance(plain, DecimalTypeInfo):
        return _nullable(_decimal)
    if isinstance(plain, RowTypeInfo):
        return _nullable(_object(plain, fail_on_missing_field))
    if isinstance(plain, TupleTypeInfo):
        return _nullable(_tuple(plain, fail_on_missing_field))
    if is_byte_array(plain):
        return _nullable(_bytes)
    if is_sequence(plain):
        inner = json_converter(plain.element_type, fail_on_missing_field)
        return None if inner is None else _nullable(lambda values: [inner(value) for value in _expect(values, list)])
    if isinstance(plain, MapTypeInfo):
        return _nullable(_map(plain, fail_on_missing_field))
    if isinstance(plain, PickledBytesTypeInfo):
        return _with_floats
    temporal = _temporal(plain)
    if temporal is None:
        raise ProgramError(f"JSON cannot be read as {type_info}. Declare another type, or none.")
    return _nullable(temporal)


def _nullable(convert: Converter | None) -> Converter | None:
    return None if convert is None else lambda value: None if value is None else _convert(convert, value)


def _convert(convert: Converter, value: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{value!r} ({type(value).__name__}): {error}") from error


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is a {type(value).__name__}, expected a {kind.__name__}")
    return value


def _object(type_info: RowTypeInfo, fail_on_missing_field: bool) -> Converter:
    names = type_info.get_field_names()
    fields = [json_converter(field, fail_on_missing_field) for field in type_info.get_field_types()]

    def convert(document: Any) -> tuple[Any, ...]:
        _expect(document, dict)
        if fail_on_missing_field:
            for name in names:
                if name not in document:
                    raise ValueError(f"field {name!r} is missing")
        get = document.get
        return tuple(
            [get(name) if field is None else field(get(name)) for name, field in zip(names, fields, strict=True)]
        )

    return convert


def _tuple(type_info: TupleTypeInfo, fail_on_missing_field: bool) -> Converter:
    fields = [json_converter(field, fail_on_missing_field) for field in type_info.get_field_types()]

    def convert(values: Any) -> tuple[Any, ...]:
        if len(_expect(values, list)) != len(fields):
            raise ValueError(f"a list of {len(values)}, expected {len(fields)} values")
        return tuple([v if field is None else field(v) for v, field in zip(values, fields, strict=True)])

    return convert


def _map(type_info: MapTypeInfo, fail_on_missing_field: bool) -> Converter:
    # JSON keys are strings, regardless of the map's key type.
    key = text_converter(type_info.key_type)
    value = json_converter(type_info.value_type, fail_on_missing_field)

    def convert(document: Any) -> dict[Any, Any]:
        return {
            (k if key is None else key(k)): (v if value is None else value(v))
            for k, v in _expect(document, dict).items()
        }

    return convert

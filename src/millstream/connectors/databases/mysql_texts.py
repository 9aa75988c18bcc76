"""Converts MySQL's strings for values to PostgreSQL's, so that `column_types` alone parses values.

In MySQL a BOOLEAN is a small number, a BIT is some bytes, a timestamp has no zone (the session's is UTC), bytes are raw
bytes, and lists are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.databases.sql_values import array_text, is_array
from millstream.records.shapes import is_byte_array, plain_type

__all__ = ["mysql_texts"]


def mysql_texts(values: Sequence[str | bytes | None], type_info: TypeInformation, *, is_bits: bool = False) -> pa.Array:
    """A column of MySQL's strings, to be parsed as this type. An invalid string is passed on, and the parser reports
    it.

    >>> mysql_texts(["1", None, "0"], Types.BOOLEAN()).to_pylist()
    ['t', None, 'f']
    >>> mysql_texts([b"\\x01\\x05"], Types.LONG(), is_bits=True).to_pylist()
    ['261']
    """
    written = _writer(plain_type(type_info))
    if is_bits:
        values = [None if value is None else _number(value, type_info) for value in values]
    return pa.array([None if value is None else written(value) for value in values], pa.string())


def _number(bits: str | bytes, type_info: TypeInformation) -> str | bytes:
    """A BIT column as a number; as bytes for a column of bytes."""
    assert isinstance(bits, bytes)
    return bits if is_byte_array(plain_type(type_info)) else str(int.from_bytes(bits, "big"))


def _writer(plain: TypeInformation) -> Callable[[str | bytes], str]:
    if plain == Types.BOOLEAN():
        return lambda value: _truth(_text(value))
    if plain == Types.INSTANT():
        return lambda value: f"{_text(value)}+00"
    if is_byte_array(plain):
        return lambda value: "\\x" + (value if isinstance(value, bytes) else value.encode()).hex()
    if is_array(plain):
        return lambda value: _array(_text(value))
    return _text


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


def _truth(text: str) -> str:
    """Zero is false, any other number is true."""
    digits = text.removeprefix("-")
    return ("t" if digits.strip("0") else "f") if digits.isdigit() else text


def _array(text: str) -> str:
    try:
        values: Any = json.loads(text)
    except ValueError:
        return text
    return array_text(_marked(values)) if isinstance(values, list) else text


def _marked(values: list[Any]) -> list[Any]:
    marks = {True: "t", False: "f"}
    return [
        _marked(value) if isinstance(value, list) else marks[value] if isinstance(value, bool) else value
        for value in values
    ]

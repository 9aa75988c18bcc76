"""Converts keys from strings and JSON, and values to JSON, by declared types and never by unpickling.

    declared type         as a string in a path  as JSON
    STRING                itself                 text
    LONG, INT, …          digits                 number without a fraction
    DOUBLE, FLOAT         a number               number, or "NaN", "Infinity"
    BOOLEAN               true, false            true, false
    bytes                 base64                 text in base64
    date, time, instant   ISO 8601               text in ISO 8601
    decimals              digits                 text
    rows, tuples, lists   JSON                   array or object

Keys of tables have SQL types, which map to these (`key_types`); several columns are an array, or an object.

A key without a declared type is a string in a path; with `key_format=json` it is a JSON value. Objects are rejected as
keys without a type, because their fields are unknown. `key_columns` defines equality of keys: without a type, 1, 1.0
and true are the same key; for LONG, 1.0 is the key 1. Without a type, NaN and Infinity are written without quotes,
because "NaN" is a string (standard JSON cannot express them, Python's json module can).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.time import Duration, Instant
from millstream.common.types import Row
from millstream.query.wire.key_types import key_type_on_the_wire
from millstream.query.wire.refusals import BadQuestionError, KeyMisfitError, PickledStateError

__all__ = ["json_of", "json_of_key", "key_of_json", "key_of_text"]

_SHOWN_CHARACTERS = 60
_DIGITS_MAX = 4_000
_DEPTH_MAX = 32


def key_of_text(text: str, written: Any, key_format: str = "text") -> Any:
    """The key in a path segment; `written` is the key type in the manifest.

    >>> key_of_text("42", "LONG"), key_of_text("42", "PICKLED"), key_of_text("42", "PICKLED", "json")
    (42, '42', 42)
    >>> key_of_text("42", {"sql": ["VARCHAR", True, 9]}), key_of_text("42", {"sql": ["BIGINT", True]})
    ('42', 42)
    """
    written = key_type_on_the_wire(written)
    if key_format == "json" or isinstance(written, dict):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadQuestionError(f"key {_shown(text)} is not JSON: {error}.") from error
        return key_of_json(value, written)
    if written in _TRUTH:
        return key_of_json({"true": True, "false": False}.get(text, text), written)
    if written in _INTEGER_BITS or written in _FLOATS:
        try:
            number = float(text) if written in _FLOATS else int(text)
        except ValueError as error:
            raise _misfit(text, written, "Send a number") from error
        return key_of_json(number, written)
    return key_of_json(text, written)


def key_of_json(value: Any, written: Any) -> Any:
    """The key in a JSON value.

    >>> key_of_json(["a", 1], "PICKLED"), key_of_json({"b": 2, "a": 1}, {"row": [["a", "LONG"], ["b", "LONG"]]})
    (('a', 1), (1, 2))
    >>> key_of_json("7", "LONG")
    Traceback (most recent call last):
    millstream.query.wire.refusals.KeyMisfitError: key '7' is a string, and keys of this state are LONG. \
Send a whole number of 64 bits.
    """
    if value is None:
        return None
    written = key_type_on_the_wire(written)
    if written == "PICKLED":
        return _untyped(value)
    if isinstance(written, dict):
        return _composed(value, written)
    if written in _INTEGER_BITS:
        return _integer(value, written)
    if written in _FLOATS:
        return _float(value, written)
    if written in _TRUTH and isinstance(value, bool):
        return value
    if written in _TRUTH or not isinstance(value, str):
        raise _misfit(value, written, "Send true or false" if written in _TRUTH else "Send a string")
    return value if written in ("STRING", "CHAR") else _from_text(value, written)


def json_of(value: Any) -> Any:
    """The JSON form of a state's value.

    >>> json_of((1, b"ab", float("nan"), Row(word="a")))
    [1, 'YWI=', 'NaN', {'word': 'a'}]
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _json_float(float(value))
    if isinstance(value, Row):
        names = value._fields
        return json_of(list(value._values) if names is None else dict(zip(names, value._values, strict=False)))
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: json_of(item) for key, item in value.items()}
        return [[json_of(key), json_of(item)] for key, item in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [json_of(item) for item in value]
    return _json_scalar(value)


def json_of_key(key: Any) -> Any:
    """The form of a key that `key_of_json` accepts with any declared type or without one: rows by position, and NaN and
    infinities unchanged.

    >>> json_of_key(Row(user="a", score=float("inf")))
    ['a', inf]
    """
    if isinstance(key, float):
        return float(key)
    if isinstance(key, Row):
        return [json_of_key(part) for part in key._values]
    if isinstance(key, list | tuple):
        return [json_of_key(part) for part in key]
    return json_of_key(key.item()) if isinstance(key, np.floating) else json_of(key)


def _json_float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json_scalar(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | Instant | Duration):
        return str(value)
    if isinstance(value, pa.Scalar):
        return json_of(value.as_py())
    if isinstance(value, np.generic | np.ndarray):
        return json_of(value.tolist())
    raise PickledStateError(
        f"a value is of type {type(value).__name__}, which JSON cannot express. Declare a type for the state "
        "(Types.ROW_NAMED(…)), or read it in process with millstream.query."
    )


def _untyped(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        if depth == _DEPTH_MAX:
            raise KeyMisfitError(f"a key has nested arrays, more than {_DEPTH_MAX} deep. No key has this form.")
        return tuple(_untyped(item, depth + 1) for item in value)
    if isinstance(value, dict):
        raise KeyMisfitError(
            f"key {_shown(value)} is an object, and this state's keys have no declared type. Send an array for a "
            "tuple, or declare key_type= in key_by."
        )
    return value


def _composed(value: Any, written: dict[str, Any]) -> Any:
    """Returns a row or tuple as a tuple (fields by name from an object, by position from an array), a list as a
    list."""
    if "list" in written and isinstance(value, list):
        return [key_of_json(item, written["list"]) for item in value]
    fields = (
        written["row"] if "row" in written else [[f"f{i}", kind] for i, kind in enumerate(written.get("tuple", ()))]
    )
    names = [name for name, _ in fields]
    if isinstance(value, dict) and set(value) == set(names):
        value = [value[name] for name in names]
    if "map" in written or not isinstance(value, list) or len(value) != len(fields):
        raise _misfit(value, written, f"Send an array of {', '.join(names)}")
    return tuple(key_of_json(item, kind) for item, (_, kind) in zip(value, fields, strict=True))


def _from_text(text: str, written: str) -> Any:
    """Bytes, dates, times and decimals, which are strings in JSON."""
    if len(text) > _DIGITS_MAX:
        raise _misfit(text, written, "Send a shorter text")
    try:
        if written == "BYTES":
            return base64.b64decode(text, validate=True)
        if written == "TIMESTAMP":
            return dt.datetime.fromisoformat(text)
        if written == "DATE":
            return dt.date.fromisoformat(text)
        if written == "TIME":
            return dt.time.fromisoformat(text)
        if written == "BIG_DEC" or written.startswith("DECIMAL("):
            return Decimal(text)
    except (ValueError, binascii.Error, InvalidOperation) as error:
        raise _misfit(text, written, "Send a value of that type") from error
    raise BadQuestionError(f"keys of type {written} cannot be sent as JSON. Use millstream.query in process.")


def _integer(value: Any, written: str) -> int:
    bits = _INTEGER_BITS[written]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or (bits and not -(1 << bits - 1) <= value < 1 << bits - 1)
    ):
        raise _misfit(value, written, f"Send a whole number of {bits} bits" if bits else "Send a whole number")
    return int(value)


def _float(value: Any, written: str) -> float:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass
    raise _misfit(value, written, "Send a number")


_INTEGER_BITS = {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64, "BIG_INT": 0}
_FLOATS = ("FLOAT", "DOUBLE")
_TRUTH = ("BOOLEAN",)
_JSON_NAMES = {str: "a string", int: "a number", float: "a number", bool: "a truth value", dict: "an object"}


def _misfit(value: Any, written: Any, advice: str) -> KeyMisfitError:
    json_type = _JSON_NAMES.get(type(value), "an array")
    kind = written if isinstance(written, str) else json.dumps(written)
    return KeyMisfitError(f"key {_shown(value)} is {json_type}, and keys of this state are {kind}. {advice}.")


def _shown(value: Any) -> str:
    # A number with very many digits is never printed: that alone would exceed the time limit of a request.
    if isinstance(value, int) and value.bit_length() > 200:
        return f"of {value.bit_length()} bits"
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "(too long to show)"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

"""The canonical form of keys without a declared type, which defines which Python values are one key.

It follows the rule of `key_columns`: 1, True, 1.0 and Decimal("1.0") are one key, and (1, "a") and (True, "a") are one
key. `simplify` converts a value to a form in which equal values are the same key:

    None                                itself; hashes to the seed
    int, bool, integral float, Decimal  an int: hashed as int64; beyond 64 bits as Spark hashes a decimal(38,0)
    other float, Decimal equal to one   a float: hashed as double; every NaN is one key
    other Decimal                       a Decimal without trailing zeros: hashed as a string
    str, bytes                          themselves, hashed as string and binary
    date, time, timedelta               themselves, hashed as Spark's date, time and day-time interval
    datetime                            itself if naive, else the instant; hashed as timestamp
    tuple, named tuple, Row, list       the tuple of its values (a Row's names and kind are not part of it)
    frozen dataclass, Enum, UUID,       the class's name and the values that make two of them equal, because
    Instant                             UserId(1) and OrderId(1) are not one key; hashed as a tuple
    int, str and other value Enums      their value, to which they are equal
    numpy scalars                       the Python number they are equal to

`canonical_bytes` encodes that form: two keys have the same bytes exactly when they are one key, in every process and
every version; `decode` (of `canonical_decoding`) reads them back. Mutable values and values without a stable identity
are rejected, with an alternative. `canonical_hash` is the slow reference for `canonical_columns`, which computes the
hashes vectorised.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import math
import reprlib
import struct
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from millstream.common.time import Instant
from millstream.common.types import Row
from millstream.errors import ProgramError
from millstream.state.keys.canonical_decoding import ClassKey, decode
from millstream.state.keys.hashing_reference import hash_bytes, hash_int, hash_long, micros_of, twos_complement

__all__ = ["NamedKey", "canonical_bytes", "canonical_hash", "decimal_text", "decode", "simplify", "text_bytes"]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()
_DECIMAL_DIGITS_MAX = 4_096


class NamedKey(NamedTuple):
    """A value of a class that is part of its identity: equal only to values of the same class.

    The module is used to import the class again (empty: a class of this project). It is not hashed, so that routing
    does not depend on how the program was started.
    """

    class_name: str
    values: tuple[Any, ...]
    module: str = ""


def simplify(key: Any) -> Any:
    """The canonical form of one key; the elements of a tuple are not simplified.

    >>> simplify(True), simplify(-0.0), simplify(decimal.Decimal("1.50")), simplify(Row(user="a", age=1))
    (1, 0, 1.5, ('a', 1))
    """
    exact = _SIMPLIFIERS_BY_TYPE.get(type(key))
    if exact is not None:
        return exact(key)
    for kind, simplified in _SIMPLIFIERS:
        if isinstance(key, kind):
            return simplified(key)
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        return _of_dataclass(key)
    raise _refusal(key)


def _itself(key: Any) -> Any:
    return key


def _of_float(key: float) -> int | float:
    return int(key) if key.is_integer() else float(key)


def _of_decimal(key: decimal.Decimal) -> int | float | decimal.Decimal:
    if key.is_nan():
        return math.nan
    if key.is_infinite():
        return float(key)
    if abs(key.adjusted()) > _DECIMAL_DIGITS_MAX:
        raise ProgramError(
            f"key {reprlib.repr(key)} has its first digit {abs(key.adjusted())} places from the point; a key may have "
            f"{_DECIMAL_DIGITS_MAX}. Round it, or use str(key) as the key."
        )
    if key == key.to_integral_value():
        return int(key)
    # Comparing a Decimal with a float is exact: only values such as 0.5 are both.
    if float(key) == key:
        return float(key)
    return decimal.Context(prec=len(key.as_tuple().digits)).normalize(key)


def _of_datetime(key: dt.datetime) -> dt.datetime:
    if getattr(key, "nanosecond", 0):
        raise ProgramError(
            f"key {reprlib.repr(key)} is a {type(key).__name__} with nanoseconds (or no time at all), which a "
            "datetime cannot hold. Use its integer value, or round it to microseconds with to_pydatetime()."
        )
    return dt.datetime(
        key.year, key.month, key.day, key.hour, key.minute, key.second, key.microsecond, key.tzinfo, fold=key.fold
    )


def _of_time(key: dt.time) -> dt.time:
    if key.tzinfo is not None:
        raise ProgramError(
            f"key {key!r} is a time of day with a time zone, which names no fixed point in time. "
            "Use key.replace(tzinfo=None), or a datetime with a time zone."
        )
    return key


def _of_date(key: dt.date) -> dt.date:
    return dt.date(key.year, key.month, key.day)


def _of_enum(key: enum.Enum) -> NamedKey:
    # Members have names, but before Python 3.11 a combination of flags has no name.
    values = (key.value if isinstance(key, enum.Flag) else key.name,)
    return NamedKey(type(key).__qualname__, values, type(key).__module__)


def _of_dataclass(key: Any) -> NamedKey:
    if not type(key).__dataclass_params__.eq or type(key).__hash__ is None:
        raise _refusal(key)
    fields = dataclasses.fields(key)
    values = tuple(getattr(key, field.name) for field in fields if field.compare)
    return NamedKey(type(key).__qualname__, values, type(key).__module__)


def _of_class_key(key: ClassKey) -> NamedKey:
    """A key that was decoded without its class equals the original key."""
    module, _, class_name = key.name.rpartition(":")
    return NamedKey(class_name, key.values, module)


_SIMPLIFIERS_BY_TYPE: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((type(None), int, str, bytes, tuple, NamedKey, dt.date, dt.timedelta), _itself),
    dt.datetime: _itself,
    bool: int,
    float: _of_float,
    Row: tuple,
    list: tuple,
    ClassKey: _of_class_key,
}

# Tried in this order: an IntEnum is an int, a datetime is a date, and the first match wins.
_SIMPLIFIERS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (np.timedelta64, lambda key: _refuse(key)),  # numpy treats it as an int, which ignores its unit
    ((int, np.integer, np.bool_), int),
    ((float, np.floating), lambda key: _of_float(float(key))),
    (str, str.__str__),
    (bytes, bytes),
    (decimal.Decimal, _of_decimal),
    (dt.datetime, _of_datetime),
    (dt.date, _of_date),
    (dt.time, _of_time),
    (dt.timedelta, lambda key: dt.timedelta(key.days, key.seconds, key.microseconds)),
    ((tuple, Row, list), tuple),
    (enum.Enum, _of_enum),
    (uuid.UUID, lambda key: NamedKey("UUID", (str(key),))),
    (Instant, lambda key: NamedKey("Instant", (key.seconds, key.nanos))),
)


_INSTEAD: tuple[tuple[type | tuple[type, ...], str, str], ...] = (
    (dict, "can change and has no fixed order", "tuple(sorted(key.items()))"),
    ((set, frozenset), "has no fixed order", "tuple(sorted(key))"),
    ((bytearray, memoryview), "can change", "bytes(key)"),
    (np.ndarray, "can change", "tuple(key.tolist())"),
    (np.timedelta64, "is a number without its unit", "key.item()"),
)


def _refuse(key: Any) -> NoReturn:
    raise _refusal(key)


def _refusal(key: Any) -> ProgramError:
    """The error for a value that cannot be a key: the reason, and what to return from the key selector instead."""
    name = type(key).__qualname__
    for kind, reason, instead in _INSTEAD:
        if isinstance(key, kind):
            return ProgramError(
                f"key {reprlib.repr(key)} is a {name}, which {reason}: its state could not be looked up again. "
                f"Use {instead} as the key."
            )
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        return ProgramError(
            f"key {reprlib.repr(key)} is a {name}, a dataclass that can change or is compared by identity. "
            f"Declare it @dataclass(frozen=True), or use a tuple of its fields as the key."
        )
    return ProgramError(
        f"key {reprlib.repr(key)} is a {name}, which has no form that is the same in every process: its state could "
        "not be looked up again. Use a str, number, bytes or date, a tuple of these, or a frozen dataclass as key."
    )


def decimal_text(key: decimal.Decimal) -> bytes:
    """The string form in which a simplified Decimal is hashed and written.

    >>> decimal_text(simplify(decimal.Decimal("0.10")))
    b'1E-1'
    """
    sign, digits, exponent = key.as_tuple()
    return f"{'-' if sign else ''}{''.join(map(str, digits))}E{exponent}".encode()


def text_bytes(key: str) -> bytes:
    """A string's UTF-8 form; rejects unpaired surrogates, which cannot be encoded."""
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise ProgramError(
            f"key {reprlib.repr(key)} holds half a surrogate pair at position {error.start}, which UTF-8 cannot write. "
            "Decode the input with errors='replace', or use key.encode('utf-8', 'surrogatepass') as the key."
        ) from None


def canonical_bytes(key: Any) -> bytes:
    """The bytes of a key without a declared type, in every process and every version.

    >>> canonical_bytes(1) == canonical_bytes(True) == canonical_bytes(1.0)
    True
    >>> canonical_bytes(("a", 1)).hex(" ")
    '28 00 00 00 02 73 61 00 00 00 09 69 00 00 00 00 00 00 00 01'
    """
    key = simplify(key)
    return _BYTES[type(key)](key)


def _int_bytes(key: int) -> bytes:
    return b"i" + struct.pack(">q", key) if INT64_MIN <= key <= INT64_MAX else b"I" + twos_complement(key)


def _float_bytes(key: float) -> bytes:
    return b"f" + struct.pack(">d", math.nan if math.isnan(key) else key)


def _datetime_bytes(key: dt.datetime) -> bytes:
    return (b"t" if key.tzinfo is None else b"u") + struct.pack(">q", micros_of(key))


def _parts_bytes(tag: bytes, parts: tuple[Any, ...]) -> bytes:
    encoded_parts = map(canonical_bytes, parts)
    return tag + b"".join(struct.pack(">I", len(part)) + part for part in encoded_parts)


def _full_name(key: NamedKey) -> str:
    return f"{key.module}:{key.class_name}" if key.module else key.class_name


_BYTES: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"n",
    int: _int_bytes,
    float: _float_bytes,
    decimal.Decimal: lambda key: b"m" + decimal_text(key),
    str: lambda key: b"s" + text_bytes(key),
    bytes: lambda key: b"b" + key,
    dt.date: lambda key: b"d" + struct.pack(">i", key.toordinal() - _EPOCH_ORDINAL),
    dt.datetime: _datetime_bytes,
    dt.time: lambda key: b"h" + struct.pack(">q", micros_of(key)),
    dt.timedelta: lambda key: b"p" + twos_complement(micros_of(key)),  # may exceed 64 bits of microseconds
    tuple: functools.partial(_parts_bytes, b"("),
    NamedKey: lambda key: _parts_bytes(b"o", (_full_name(key), *key.values)),
}


def canonical_hash(key: Any, seed: int = 42) -> int:
    """The hash of one key without a declared type; `canonical_columns` computes it for many at once.

    >>> canonical_hash(1), canonical_hash("Spark")
    (-7001672635703045582, -4294468057691064905)
    """
    key = simplify(key)
    kind = type(key)
    if kind is NamedKey:
        key, kind = (key.class_name, *key.values), tuple
    if kind is tuple:
        for part in key:
            seed = canonical_hash(part, seed)
        return seed
    return seed if key is None else _HASHES[kind](key, seed)


def _int_hash(key: int, seed: int) -> int:
    return hash_long(key, seed) if INT64_MIN <= key <= INT64_MAX else hash_bytes(twos_complement(key), seed)


_HASHES: dict[type, Callable[[Any, int], int]] = {
    int: _int_hash,
    float: lambda key, seed: hash_long(int.from_bytes(_float_bytes(key)[1:], "big"), seed),
    decimal.Decimal: lambda key, seed: hash_bytes(decimal_text(key), seed),
    str: lambda key, seed: hash_bytes(text_bytes(key), seed),
    bytes: hash_bytes,
    dt.date: lambda key, seed: hash_int(key.toordinal() - _EPOCH_ORDINAL, seed),
    dt.datetime: lambda key, seed: hash_long(micros_of(key), seed),
    dt.time: lambda key, seed: hash_long(micros_of(key) * 1_000, seed),
    dt.timedelta: lambda key, seed: hash_long(micros_of(key), seed),
}

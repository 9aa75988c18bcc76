"""Decodes canonical bytes to keys, as timers and scans pass them to the user's function.

Many values are one key (1, True and 1.0; a Row and a tuple), so decoding returns the simplest of them. Invariant:
`canonical_bytes(decode(data)) == data`. Frozen dataclasses and enums are stored with the name of their class.
`of_class` converts them: a task restores them (`runtime.exchange.key_classes`), which imports the class and so runs
code; all other callers get a `ClassKey`, without running code. Bytes that `canonical_bytes` did not write are rejected.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from millstream.common.time import Instant
from millstream.errors import ProgramError, StoreDamagedError

__all__ = ["ClassKey", "OfClass", "decode"]

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_ORDINAL = _EPOCH.toordinal()
_UNEQUAL: dict[tuple[Any, bytes], Any] = {}
"""Keys that contain NaN and differ from others with the same parts, by `of_class` and bytes."""
_NAN_MARKS = (struct.pack(">d", math.nan)[:2], b"NaN")
"""A byte sequence in every stored key that contains NaN: the float's first bytes, or a Decimal's string."""


@dataclass(frozen=True)
class ClassKey:
    """A key of one of the program's classes, for readers that do not import the program: `name` is the name of its
    module and class, `values` are the fields that define its equality."""

    name: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name.rpartition(':')[2]}({', '.join(map(repr, self.values))})"


OfClass: TypeAlias = Callable[[str, tuple[Any, ...]], Any]
"""A function that creates a value from the name of a class ("module:Class") and the stored fields."""


def decode(data: bytes, of_class: OfClass = ClassKey) -> Any:
    """The key with these canonical bytes.

    >>> from millstream.state.keys.canonical import canonical_bytes
    >>> decode(canonical_bytes((True, "a", None))), decode(canonical_bytes(decimal.Decimal("0.10")))
    ((1, 'a', None), Decimal('0.1'))
    """
    kind = data[:1]
    try:
        if kind == b"(":
            return tuple(_parts(data[1:], of_class))
        if kind == b"o":
            return _class_key(data[1:], of_class)
        return _READ[kind](data[1:])
    except ProgramError:  # an error of the program, reported by of_class; the store is intact
        raise
    except _DECODE_ERRORS as error:
        raise _not_a_key(data) from error


_DECODE_ERRORS = (
    KeyError,
    ValueError,
    TypeError,
    struct.error,
    OverflowError,
    decimal.InvalidOperation,
    RecursionError,
)


def _not_a_key(data: bytes) -> StoreDamagedError:
    return StoreDamagedError(f"{data[:40]!r} is not the stored form of a key. Was it written by a newer Millstream?")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _int64(data: bytes) -> int:
    return int(struct.unpack(">q", data)[0])


def _float(data: bytes) -> float:
    number: float = struct.unpack(">d", data)[0]
    # All NaNs are one object, so that dictionaries treat them as one key.
    return number if number == number else math.nan


def _moment(data: bytes) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=_int64(data))


def _time_of_day(data: bytes) -> dt.time:
    return (_EPOCH + dt.timedelta(microseconds=_int64(data))).time()


def _parts(data: bytes, of_class: OfClass) -> Iterator[Any]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        part = data[at + 4 : at + 4 + length]
        if len(part) != length:
            raise ValueError("cut short")
        yield decode(part, of_class)
        at += 4 + length


def _class_key(data: bytes, of_class: OfClass) -> Any:
    """A value of a class: its name, then the values that define its equality."""
    name, *values = _parts(data, of_class)
    if name == "UUID":
        return uuid.UUID(*values)
    if name == "Instant":
        return Instant(*values)
    if not isinstance(name, str):
        raise TypeError("the name of a class is a string")
    key = of_class(name, tuple(values))
    if not any(mark in data for mark in _NAN_MARKS):
        return key
    # Dataclasses of newer Python versions are compared field by field, and a NaN is not equal to itself: then one
    # shared object represents them all. A dataclass that equals a copy with the same parts does not need one.
    return key if key == of_class(name, tuple(values)) else _UNEQUAL.setdefault((of_class, data), key)


_READ: dict[bytes, Callable[[bytes], Any]] = {
    b"n": lambda data: None,
    b"i": _int64,
    b"I": _number,
    b"f": _float,
    b"m": lambda data: decimal.Decimal(data.decode()),
    b"s": lambda data: data.decode(),
    b"b": lambda data: data,
    b"d": lambda data: dt.date.fromordinal(struct.unpack(">i", data)[0] + _EPOCH_ORDINAL),
    b"t": _moment,
    b"u": lambda data: _moment(data).replace(tzinfo=dt.UTC),
    b"h": _time_of_day,
    b"p": lambda data: dt.timedelta(microseconds=_number(data)),
}

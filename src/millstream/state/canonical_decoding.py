"""From canonical bytes back to a key: what a timer or a scan gives the user's function.

Many values are one key (1, True and 1.0; a Row and a tuple), so what comes back is their representative: the
simplest of them. Invariant: `canonical_bytes(decode(data)) == data`. Frozen dataclasses and enums come back as
their own class, which is imported by its name. A class of the program's main file, or one defined inside a
function, has no importable name in a worker; it came there with the user's function, and is found among the
classes that are alive. Bytes that no `canonical_bytes` wrote are refused, not guessed at.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import importlib
import math
import struct
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from millstream.common.time import Instant
from millstream.errors import ProgramError, StoreDamagedError

__all__ = ["decode"]

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_ORDINAL = _EPOCH.toordinal()
_UNEQUAL: dict[bytes, Any] = {}
"""Keys that hold NaN and are not equal to themselves, by their bytes."""


def decode(data: bytes) -> Any:
    """The key that these canonical bytes stand for.

    >>> from millstream.state.canonical import canonical_bytes
    >>> decode(canonical_bytes((True, "a", None))), decode(canonical_bytes(decimal.Decimal("0.10")))
    ((1, 'a', None), Decimal('0.1'))
    """
    read = _READ.get(data[:1])
    if read is None:
        raise _not_a_key(data)
    try:
        return read(data[1:])
    except (ValueError, struct.error, OverflowError, decimal.InvalidOperation) as error:
        raise _not_a_key(data) from error


def _not_a_key(data: bytes) -> StoreDamagedError:
    return StoreDamagedError(f"{data[:40]!r} is not the stored form of a key. Was it written by a newer Millstream?")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _int64(data: bytes) -> int:
    return int(struct.unpack(">q", data)[0])


def _float(data: bytes) -> float:
    number: float = struct.unpack(">d", data)[0]
    # All NaNs are one object, so that dictionaries take them for one key.
    return number if number == number else math.nan


def _moment(data: bytes) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=_int64(data))


def _time_of_day(data: bytes) -> dt.time:
    return (_EPOCH + dt.timedelta(microseconds=_int64(data))).time()


def _parts(data: bytes) -> Iterator[Any]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        part = data[at + 4 : at + 4 + length]
        if len(part) != length:
            raise ValueError("cut short")
        yield decode(part)
        at += 4 + length


def _named(data: bytes) -> Any:
    """A value of a class: its name, then the values that make two of them equal."""
    name, *values = _parts(data)
    if name == "UUID":
        return uuid.UUID(*values)
    if name == "Instant":
        return Instant(*values)
    module, _, qualname = name.partition(":")
    found = _class_named(module, qualname)
    if issubclass(found, enum.Flag):
        return found(*values)
    if issubclass(found, enum.Enum):
        return found[values[0]]
    made = _dataclass_of(found, values)
    # Newer Pythons compare field by field, and a NaN is not equal to itself: then one object must do for all.
    return made if made == made else _UNEQUAL.setdefault(data, made)


def _dataclass_of(found: type, values: list[Any]) -> Any:
    """A value with these fields. Its `__init__` is not called: the key was checked when it was first made."""
    fields = dataclasses.fields(found) if dataclasses.is_dataclass(found) else ()
    compared = [field for field in fields if field.compare]
    if len(compared) != len(values):
        raise ProgramError(
            f"a key of class {found.__qualname__} was stored with {len(values)} fields, the class now has "
            f"{len(compared)}. Give the class its fields back, or start without the old state."
        )
    made: Any = object.__new__(found)
    for field, value in zip(compared, values, strict=True):
        object.__setattr__(made, field.name, value)
    for field in fields:
        if not field.compare:
            object.__setattr__(made, field.name, _default_of(field))
    return made


def _default_of(field: dataclasses.Field[Any]) -> Any:
    """What stands in a field that is no part of the key, and was therefore not stored."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


@functools.lru_cache(maxsize=256)
def _class_named(module: str, qualname: str) -> type:
    found: Any = None
    try:
        found = sys.modules.get(module) or importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        found = _living_class(module, qualname)
    if isinstance(found, type):
        return found
    raise ProgramError(
        f"a key of class {qualname} of module {module} was stored, and there is no such class now. Put it back where "
        "it was, or in a module that workers can import."
    )


def _living_class(module: str, qualname: str) -> type | None:
    """The class of this name that is alive in this process, the youngest if there are several."""
    seen: set[type] = set()
    waiting: list[type] = [object]
    found = None
    while waiting:
        children: list[type] = type.__subclasses__(waiting.pop())
        for child in children:
            if child not in seen:
                seen.add(child)
                waiting.append(child)
                if child.__module__ == module and child.__qualname__ == qualname:
                    found = child
    return found


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
    b"(": lambda data: tuple(_parts(data)),
    b"o": _named,
}

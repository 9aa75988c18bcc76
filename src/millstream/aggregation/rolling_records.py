"""Running sums, minima and maxima, a record at a time: the slow reference implementation.

It is the reference for `rolling_columns`, and is used where data is not columnar: untyped streams, fields of any size
(BIG_INT, BIG_DEC), and Python objects.

Definitions:

- `sum`, `min`, `max` return the key's first record with one field replaced; `min_by`, `max_by` return the whole record
  with the smallest or largest value, the first of equals.
- Arithmetic follows the declared type: BYTE to LONG wrap around as in Java, or fail if strict; FLOAT is rounded to 32
  bits after every addition; BIG_INT, BIG_DEC and DECIMAL are exact. Without a declared type it is Python's.
- NaN is larger than every number, as in Java's order. None is an error: it is neither zero nor small.
"""

from __future__ import annotations

import copy
import decimal
import struct
from dataclasses import dataclass
from typing import Any

from millstream.common.typeinfo import BasicType
from millstream.common.types import Row
from millstream.errors import ProgramError

__all__ = [
    "EXACT",
    "INTEGER_BITS",
    "FieldReduce",
    "as_float32",
    "mutable_copy",
    "overflow_error",
    "sorts_before",
    "wrapped",
]

INTEGER_BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}
EXACT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_UNCHANGING = frozenset({int, float, str, bytes, bool, type(None), complex, decimal.Decimal})


@dataclass(frozen=True)
class FieldReduce:
    """A reduction by one field. `kind`: sum, min, max, min_by or max_by; `basic`: the field's type where declared.

    >>> FieldReduce("sum", 1).reduce(("a", 1, "first"), ("a", 2, "second"))
    ('a', 3, 'first')
    >>> FieldReduce("max_by", 1).reduce(("a", 1, "first"), ("a", 2, "second"))
    ('a', 2, 'second')
    >>> FieldReduce("sum", 0, BasicType.BYTE).reduce(127, 1)
    -128
    """

    kind: str
    field: int | str
    basic: BasicType | None = None
    is_strict: bool = False

    def first(self, record: Any) -> Any:
        """The record, checked to be a valid first one."""
        self._field_of(record)
        return record

    def reduce(self, before: Any, record: Any) -> Any:
        """The result after one more record; `before` is the result so far."""
        old, new = self._field_of(before), self._field_of(record)
        if self.kind == "sum":
            return self._with_field(before, self._sum(old, new))
        is_winner = sorts_before(new, old) if self.kind.startswith("min") else sorts_before(old, new)
        if self.kind.endswith("_by"):
            return record if is_winner else before
        return self._with_field(before, new) if is_winner else before

    def _field_of(self, record: Any) -> Any:
        try:
            value = record[self.field] if _has_fields(record) else self._whole(record)
        except (TypeError, KeyError, IndexError) as error:
            raise ProgramError(
                f"{self.kind}({self.field!r}): a record of {type(record).__name__} has no such field. Name one of its "
                "fields"
            ) from error
        if value is None:
            raise ProgramError(
                f"{self.kind}({self.field!r}): the value is None, which has no {_WORDS[self.kind]}. "
                "Filter such records out, or map None to a value"
            )
        return value

    def _whole(self, record: Any) -> Any:
        if self.field == 0:
            return record
        raise TypeError("a plain value is its own field 0")

    def _with_field(self, record: Any, value: Any) -> Any:
        if not _has_fields(record):
            return value
        if isinstance(record, tuple):
            assert isinstance(self.field, int)
            make = getattr(type(record), "_make", tuple)  # keeps the type of named tuples
            return make((*record[: self.field], value, *record[self.field + 1 :]))
        copied = copy.copy(record)
        if isinstance(copied, Row):
            copied._values = list(copied._values)
        copied[self.field] = value
        return copied

    def _sum(self, old: Any, new: Any) -> Any:
        if self.basic is BasicType.FLOAT:
            return as_float32(old + new)
        if self.basic in INTEGER_BITS:
            total = wrapped(old + new, self.basic)
            if self.is_strict and total != old + new:
                raise overflow_error(f"sum({self.field!r})", self.basic)
            return total
        if isinstance(old, decimal.Decimal) and isinstance(new, decimal.Decimal):
            return EXACT.add(old, new)
        if isinstance(old, str) or isinstance(new, str):
            raise ProgramError(f"sum({self.field!r}): the value is text, expected a number. Map it to a number first")
        return old + new


_WORDS = {"sum": "sum", "min": "order", "max": "order", "min_by": "order", "max_by": "order"}


def _has_fields(record: Any) -> bool:
    return isinstance(record, (tuple, list, Row, dict))


def sorts_before(left: Any, right: Any) -> bool:
    """Whether `left` sorts before `right`, NaN last."""
    if right != right:
        return bool(left == left)
    return bool(left == left) and bool(left < right)


def wrapped(value: int, basic: BasicType) -> int:
    """An integer in the range of its type: larger values wrap around, as in Java."""
    half = 1 << (INTEGER_BITS[basic] - 1)
    return (value + half) % (2 * half) - half


def overflow_error(subject: str, basic: BasicType) -> ProgramError:
    """The error for a strict sum that exceeds its type."""
    wider = "BIG_INT" if basic is BasicType.LONG else "LONG or BIG_INT"
    return ProgramError(
        f"{subject}: the sum exceeds {basic.name}, its declared type. Declare {wider}, or let it wrap around as "
        "Flink does (millstream.sum.overflow = wrap)"
    )


def as_float32(value: float) -> float:
    """The value rounded to FLOAT; infinite if too large."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def mutable_copy(value: Any) -> Any:
    """A copy that may be changed without changing `value`; the same object if it is immutable.

    A reduce function may change its first argument and return it. Earlier emitted results must not change with it.
    """
    kind = type(value)
    if kind in _UNCHANGING or (kind is tuple and _UNCHANGING.issuperset(map(type, value))):
        return value
    if kind is Row and _UNCHANGING.issuperset(map(type, value._values)):
        return copy.copy(value)
    return copy.deepcopy(value)

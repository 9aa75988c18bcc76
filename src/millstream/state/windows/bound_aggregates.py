"""Aggregates in a plan: their kind, the columns they read, and the types of their accumulators and results.

A **bound aggregate** is one named aggregate of one program, bound to the type of its input stream. Its accumulator is
one or more columns (`parts`), so that panes are rows of the store like any other state, can be queried, and merge
without a Python value. Bound aggregates are frozen data; `aggregation` computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.common.typeinfo import BasicType, BasicTypeInfo, TypeInformation, Types
from millstream.expressions.types import DecimalType
from millstream.records.shapes import plain_type
from millstream.records.table_type import TableValueType, plain_equivalent

__all__ = [
    "KINDS",
    "SQL_KINDS",
    "AggregateArgument",
    "BoundAggregate",
    "basic_type",
    "decimal_digits",
    "signed_numbers",
]

KINDS = ("count", "sum", "min", "max", "avg", "first", "last", "approx_distinct", "top_n", "collect")
SQL_KINDS = (
    *("decimal_sum", "decimal_avg", "whole_avg", "variance", "distinct", "listagg", "multiset", "array", "json"),
    "bitmap",
    *("signed_sum", "signed_values", "exact_reals", "user"),
)
"""Kinds that only SQL uses, in addition to `KINDS`. Signed kinds aggregate changelogs."""

_FLOATS = (BasicType.FLOAT, BasicType.DOUBLE)
_BY_ARRIVAL = ("first", "last", "top_n", "collect", "listagg", "multiset", "array", "json", "user")
_NEGATED_AS_THEY_ARE = ("count", "avg", "whole_avg", "decimal_sum", "decimal_avg")


def basic_type(type_info: TypeInformation | None) -> BasicType | None:
    """The basic type that a type represents, if any."""
    plain = None if type_info is None else plain_type(type_info)
    if isinstance(plain, TableValueType):
        plain = plain_equivalent(plain.data_type)
    return plain.basic_type if isinstance(plain, BasicTypeInfo) else None


def decimal_digits(type_info: TypeInformation | None) -> int:
    """The precision of a SQL decimal; 0 for other types."""
    is_decimal = isinstance(type_info, TableValueType) and isinstance(type_info.data_type, DecimalType)
    return type_info.data_type.precision if is_decimal else 0  # type: ignore[union-attr]


@dataclass(frozen=True)
class AggregateArgument:
    """An argument of an aggregate: a field, or an expression over the columns of a batch.

    `field` is a position in a typed stream (None if the record is a single value), and the user's field expression in
    an untyped one; there `type_info` is None. `mask` is a BOOLEAN column: rows where it is not TRUE are ignored.
    """

    type_info: TypeInformation | None
    field: int | str | None = None
    expression: Callable[[Any], Any] | None = None
    mask: int | None = None


@dataclass(frozen=True)
class BoundAggregate:
    """One aggregate. `arguments` is empty for `count()`, (value,) for most, (by, value) for `top_n`. `is_strict`: a sum
    that overflows its type is an error. `result` is SQL's result type, `inner` the aggregate of `distinct` or `signed`
    values, `detail` the kind of variance, or the separator of strings. `function` is the program's own aggregate, and
    `kernel` computes it; `n` is its number of arguments. `order` is the sort order of an array of rows: fields, whether
    descending, and whether NULLs are first."""

    name: str
    kind: str
    arguments: tuple[AggregateArgument, ...] = ()
    n: int = 0
    is_strict: bool = False
    result: TypeInformation | None = None
    inner: BoundAggregate | None = None
    detail: str = ""
    function: Any = None
    kernel: Callable[[BoundAggregate], Any] | None = None
    order: tuple[tuple[int, bool, bool], ...] = ()

    @property
    def is_typed(self) -> bool:
        """Whether all its arguments have a declared type."""
        return all(argument.type_info is not None for argument in self.arguments)

    @property
    def is_floating(self) -> bool:
        """Whether its argument is FLOAT or DOUBLE."""
        return bool(self.arguments) and basic_type(self.arguments[0].type_info) in _FLOATS

    @property
    def goes_by_arrival(self) -> bool:
        """Whether its result may depend on the order of records."""
        return self.kind in _BY_ARRIVAL or (self.inner is not None and self.inner.goes_by_arrival)

    @property
    def result_type(self) -> TypeInformation:
        """The type of its result; the aggregate must be typed."""
        if self.result is not None:
            return self.result
        if self.kind in ("count", "approx_distinct"):
            return Types.LONG()
        if self.kind == "avg":
            return Types.DOUBLE()
        value = self._type_of(-1)
        return Types.LIST(value) if self.kind in ("top_n", "collect") else value

    @property
    def parts(self) -> tuple[tuple[str, TypeInformation], ...]:
        """Names and types of its accumulator's columns; the aggregate must be typed."""
        return tuple((f"{self.name}.{part}", type_info) for part, type_info in self._unnamed_parts())

    def _unnamed_parts(self) -> tuple[tuple[str, TypeInformation], ...]:
        long, double = Types.LONG(), Types.DOUBLE()
        if self.kind == "count":
            return (("count", long),)
        if self.kind in ("counted_values", "headed_values", "summed_values", "numbered_values"):
            return self._parts_with_others_elsewhere()
        if self.kind == "marked_values":
            return (("values", Types.LIST(Types.ROW_NAMED(["value", "marks"], [self._type_of(0), long]))),)
        if self.kind == "sum":
            return (("sum", double if self.is_floating else long),)
        if self.kind == "avg":
            total = (("sum", double),) if self.is_floating else (("high", long), ("low", long))
            return (*total, ("count", long))
        if self.kind == "approx_distinct":
            return (("registers", Types.PRIMITIVE_ARRAY(Types.BYTE())),)
        if self.kind in SQL_KINDS:
            return self._parts_of_sql()
        value = self._type_of(-1)
        if self.kind in ("min", "max"):
            return (("value", value),)
        if self.kind in ("first", "last"):
            return (("at", long), ("value", value))
        if self.kind == "top_n":
            return (("best", Types.LIST(Types.ROW_NAMED(["by", "at", "value"], [self._type_of(0), long, value]))),)
        return (("values", Types.LIST(Types.ROW_NAMED(["at", "value"], [long, value]))),)

    def _parts_of_sql(self) -> tuple[tuple[str, TypeInformation], ...]:
        long, double = Types.LONG(), Types.DOUBLE()
        if self.kind in ("decimal_sum", "decimal_avg"):
            # Sums in limbs of 32 bits, the highest first: two for decimals of up to 18 digits, otherwise four.
            limbs = 2 if decimal_digits(self._type_of(0)) <= 18 else 4
            return (*((f"limb{number}", long) for number in reversed(range(limbs))), ("count", long))
        if self.kind == "whole_avg":
            return (("sum", long), ("count", long))
        if self.kind == "variance":
            return (("count", long), ("mean", double), ("squares", double))
        if self.kind == "signed_sum":
            return (("sum", long), ("count", long))
        if self.kind == "exact_reals":
            return (("bins", Types.LIST(Types.ROW_NAMED(["bin", "amount"], [long, long]))),)
        if self.kind == "bitmap":
            return (("bitmap", Types.PRIMITIVE_ARRAY(Types.BYTE())),)
        value = self._type_of(0)
        if self.kind == "user":
            assert self.result is not None
            rows = ("rows", Types.LIST(Types.ROW_NAMED(["sign", "arguments"], [long, value])))
            held = (("accumulator", Types.PRIMITIVE_ARRAY(Types.BYTE())), ("value", self.result))
            return (rows, *held[: {"groups": 2, "folded": 1}.get(self.detail, 0)])
        if self.kind == "signed_values":
            return (("values", Types.LIST(Types.ROW_NAMED(["value", "times"], [value, long]))),)
        if self.kind == "distinct":
            return (("values", Types.LIST(Types.ROW_NAMED(["value"], [value]))),)
        return (("values", Types.LIST(Types.ROW_NAMED(["at", "value"], [long, value]))),)

    def _parts_with_others_elsewhere(self) -> tuple[tuple[str, TypeInformation], ...]:
        """The accumulator of a `distinct` or signed aggregate that may spill its values to separate rows."""
        assert self.inner is not None
        parts = (*self.inner._unnamed_parts(), ("elsewhere", Types.LONG()))
        if self.kind == "summed_values":
            sums = self.sums_elsewhere._unnamed_parts()
            return (*parts, *((f"elsewhere_{part}", type_info) for part, type_info in sums))
        if self.kind == "numbered_values":
            return (*parts, ("arrivals", Types.LONG()), ("place", Types.LONG()), ("value", self._type_of(0)))
        return parts

    @property
    def sums_elsewhere(self) -> BoundAggregate:
        """The aggregate that sums the spilled values of `summed_values`."""
        assert self.inner is not None and self.inner.inner is not None
        sums = signed_numbers(self.inner.inner)
        assert sums is not None
        return sums

    def _type_of(self, number: int) -> TypeInformation:
        type_info = self.arguments[number].type_info
        assert type_info is not None, "an untyped measure runs a record at a time"
        return type_info


def signed_numbers(measure: BoundAggregate) -> BoundAggregate | None:
    """The aggregate with a numeric accumulator that supports retraction; None if it has no numeric accumulator."""
    if measure.kind == "variance" or (measure.is_floating and measure.kind in ("sum", "avg")):
        return replace(measure, kind="exact_reals", inner=measure)
    if measure.kind == "sum":
        return replace(measure, kind="signed_sum")
    return measure if measure.kind in _NEGATED_AS_THEY_ARE else None

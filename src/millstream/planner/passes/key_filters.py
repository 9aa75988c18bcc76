"""Finds the primary keys that a filter admits: the constants of = and IN, for every column of the key.

The keys only restrict the lookup; the filter itself remains and is applied to the rows read. The result may therefore
have too many keys, but never too few.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.planner.passes.rewriting import conjuncts
from millstream.planner.relations import Scan

__all__ = ["key_values"]

_KEYS_MAX = 10_000


def key_values(condition: RowExpression, scan: Scan, primary_key: Sequence[str]) -> pa.Array | None:
    """The keys that a scan's filter lists: one column, or structs of several; None if it does not restrict every key
    column."""
    if not primary_key:
        return None
    columns = [column.name for column in scan.table.read]
    positions = scan.columns if scan.columns is not None else tuple(range(len(columns)))
    places = {columns[position]: at for at, position in enumerate(positions)}
    named: list[list[Any]] = []
    for name in primary_key:
        values = _values(condition, places.get(name, -1))
        if values is None:
            return None
        named.append(values)
    kinds = [scan.table.column(name).type.arrow for name in primary_key]
    try:
        arrays = [pa.array(values, pa.scalar(None, kind).type) for values, kind in zip(named, kinds, strict=True)]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None  # the constant equals no value of the column, or only after a cast
    if len(arrays) == 1:
        return arrays[0].unique()
    pairs = list(itertools.islice(itertools.product(*(array.to_pylist() for array in arrays)), _KEYS_MAX + 1))
    if len(pairs) > _KEYS_MAX:
        return None
    sides = [pa.array(list(side), array.type) for side, array in zip(zip(*pairs, strict=True), arrays, strict=True)]
    return pa.StructArray.from_arrays(sides, names=[f"key{number}" for number in range(len(sides))])


def _values(condition: RowExpression, place: int) -> list[Any] | None:
    """The values that a column is restricted to; None if the condition does not restrict it."""
    for part in conjuncts(condition):
        values = _named_values(part, place)
        if values is not None:
            return values
    return None


def _named_values(part: RowExpression, place: int) -> list[Any] | None:
    if not isinstance(part, Call):
        return None
    if part.function == "OR":
        sides = [_named_values(each, place) for each in part.arguments]
        return None if any(side is None for side in sides) else [value for side in sides for value in side or ()]
    if part.function not in ("=", "IN"):
        return None
    column, *values = part.arguments
    if part.function == "=" and isinstance(column, Literal):
        column, values = values[0], [column]
    if not isinstance(column, Column) or column.index != place:
        return None
    if pa.types.is_floating(column.type.arrow) or pa.types.is_nested(column.type.arrow):
        return None  # 0.0 and -0.0 are equal values but different keys
    if not all(isinstance(value, Literal) for value in values):
        return None
    return [value.value for value in values if isinstance(value, Literal) and value.value is not None]

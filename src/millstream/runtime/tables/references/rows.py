"""UNNEST and table functions, a row at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.common.types import Row
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import MapType, MultisetType, RowType

__all__ = ["correlated_rows", "unnested_rows"]


def unnested_rows(
    rows: Iterable[Sequence[Any]],
    collection_of: Callable[[Sequence[Any]], Any],
    data_type: DataType,
    with_ordinality: bool,
    keeps_all: bool,
) -> list[tuple[Any, ...]]:
    """Every row with each element of its collection."""
    results: list[tuple[Any, ...]] = []
    for row in rows:
        elements = _elements(collection_of(row), data_type)
        for number, element in enumerate(elements, start=1):
            results.append((*row, *element, *((number,) if with_ordinality else ())))
        if not elements and keeps_all:
            width = _width(data_type) + (1 if with_ordinality else 0)
            results.append((*row, *[None] * width))
    return results


def _elements(collection: Any, data_type: Any) -> list[tuple[Any, ...]]:
    if collection is None:
        return []
    if isinstance(data_type, MapType):
        return list(collection.items())
    if isinstance(data_type, MultisetType):
        values = [value for value, count in collection.items() for _ in range(count)]
    else:
        values = list(collection)
    if not isinstance(data_type.element_type, RowType):
        return [(value,) for value in values]
    width = _width(data_type)
    return [(None,) * width if value is None else tuple(value) for value in values]


def _width(data_type: Any) -> int:
    if isinstance(data_type, MapType):
        return 2
    element = data_type.element_type
    return len(element.fields) if isinstance(element, RowType) else 1


def correlated_rows(
    rows: Iterable[Sequence[Any]],
    call: Callable[[Sequence[Any]], Iterable[Any] | None],
    width: int,
    keeps_all: bool,
) -> list[tuple[Any, ...]]:
    """Every row with each row that the function returns for it."""
    results: list[tuple[Any, ...]] = []
    for row in rows:
        returned = list(call(row) or ())
        results += [(*row, *(tuple(each) if isinstance(each, Row | tuple) else (each,))) for each in returned]
        if not returned and keeps_all:
            results.append((*row, *[None] * width))
    return results

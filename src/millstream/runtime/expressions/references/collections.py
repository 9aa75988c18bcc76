"""References of functions on arrays, maps and rows. NULL elements are equal to each other; NaN equals nothing."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from millstream.expressions.nested_types import RowType
from millstream.runtime.expressions.json_text import JsonError
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.plain_values import dict_key
from millstream.runtime.expressions.references.null_rules import null_of_null
from millstream.runtime.expressions.variants import member

__all__ = ["array_slice", "distinct", "is_same"]


def is_same(left: Any, right: Any) -> bool:
    """Whether two elements are equal; NULL equals NULL."""
    if left is None or right is None:
        return left is right
    return bool(left == right) and left == left


def _contains(values: Sequence[Any], needle: Any) -> bool:
    return any(is_same(value, needle) for value in values)


def distinct(values: Sequence[Any]) -> list[Any]:
    """The distinct values, in order of first occurrence."""
    result: list[Any] = []
    for value in values:
        if not _contains(result, value):
            result.append(value)
    return result


@reference("CARDINALITY")
@null_of_null
def cardinality(context: CallContext, collection: Sequence[Any] | dict[Any, Any]) -> int:
    """The number of elements; of a multiset including repetitions."""
    if isinstance(collection, dict) and context.argument_types[0].name == "MULTISET":
        return sum(collection.values())
    return len(collection)


@reference("ARRAY")
def array(context: CallContext, *values: Any) -> list[Any]:
    return list(values)


@reference("MAP")
def map_(context: CallContext, *parts: Any) -> dict[Any, Any]:
    """Builds a map of alternating keys and values; a later value replaces an earlier one."""
    return _build_map(zip(parts[::2], parts[1::2], strict=True))


def _build_map(pairs: Any) -> dict[Any, Any]:
    entries: dict[Any, Any] = {}
    for key, value in pairs:
        if key is None:
            raise EvaluationError("a map key is NULL; every value needs a key that is not NULL")
        entries[dict_key(key)] = value
    return entries


@reference("ROW")
def row(context: CallContext, *values: Any) -> tuple[Any, ...]:
    return values


@reference("FIELD")
@null_of_null
def field(context: CallContext, whole: Sequence[Any]) -> Any:
    type_ = context.argument_types[0]
    assert isinstance(type_, RowType)
    return whole[type_.names.index(context.option("name"))]


@reference("ITEM")
@null_of_null
def item(context: CallContext, collection: Any, place: Any) -> Any:
    """The element at an index from 1, or the value of a key; NULL if absent."""
    if isinstance(collection, dict):
        return collection.get(dict_key(place))
    if isinstance(collection, str):
        return _of_variant(collection, place)
    if place < 1:
        raise EvaluationError(f"array indexes start at 1, so there is no element {place}")
    return collection[place - 1] if place <= len(collection) else None


def _of_variant(variant: str, place: str | int) -> str | None:
    try:
        return member(variant, place)
    except JsonError as problem:
        raise EvaluationError(str(problem)) from None


@reference("ARRAY_CONTAINS")
def array_contains(context: CallContext, values: Sequence[Any] | None, needle: Any) -> bool | None:
    return None if values is None else _contains(values, needle)


@reference("ARRAY_POSITION")
@null_of_null
def array_position(context: CallContext, values: Sequence[Any], needle: Any) -> int:
    return next((place for place, value in enumerate(values, 1) if is_same(value, needle)), 0)


@reference("ARRAY_REMOVE")
def array_remove(context: CallContext, values: Sequence[Any] | None, needle: Any) -> list[Any] | None:
    return None if values is None else [value for value in values if not is_same(value, needle)]


@reference("ARRAY_APPEND")
def array_append(context: CallContext, values: Sequence[Any] | None, value: Any) -> list[Any] | None:
    return None if values is None else [*values, value]


@reference("ARRAY_PREPEND")
def array_prepend(context: CallContext, values: Sequence[Any] | None, value: Any) -> list[Any] | None:
    return None if values is None else [value, *values]


@reference("ARRAY_DISTINCT")
@null_of_null
def array_distinct(context: CallContext, values: Sequence[Any]) -> list[Any]:
    return distinct(values)


@reference("ARRAY_REVERSE")
@null_of_null
def array_reverse(context: CallContext, values: Sequence[Any]) -> list[Any]:
    return list(values)[::-1]


@reference("ARRAY_SLICE")
@null_of_null
def array_slice(context: CallContext, values: Sequence[Any], first: int, last: int | None = None) -> list[Any]:
    """The elements from `first` to `last`, inclusive. Negative indexes count from the end; 0 means 1; a start before
    the first element means the first; an end before it selects nothing."""
    count = len(values)
    start = max(first if first >= 0 else first + count + 1, 1)
    end = count if last is None else last if last > 0 else 1 if last == 0 else last + count + 1
    return list(values[start - 1 : max(end, 0)])


@reference("ARRAY_SORT")
@null_of_null
def array_sort(
    context: CallContext, values: Sequence[Any], ascending: bool = True, nulls_first: bool | None = None
) -> list[Any]:
    """Sorts an array; by default NULLs come first in ascending and last in descending order."""
    first = ascending if nulls_first is None else nulls_first
    nulls = [value for value in values if value is None]
    present = sorted((value for value in values if value is not None), key=_order, reverse=not ascending)
    return nulls + present if first else present + nulls


def _order(value: Any) -> Any:
    """The sort key; NaN is greater than any number."""
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


@reference("ARRAY_UNION")
@null_of_null
def array_union(context: CallContext, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    return distinct([*left, *right])


@reference("ARRAY_CONCAT")
@null_of_null
def array_concat(context: CallContext, *arrays: Sequence[Any]) -> list[Any]:
    return [value for values in arrays for value in values]


@reference("ARRAY_EXCEPT")
@null_of_null
def array_except(context: CallContext, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    return distinct([value for value in left if not _contains(right, value)])


@reference("ARRAY_INTERSECT")
@null_of_null
def array_intersect(context: CallContext, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    return distinct([value for value in left if _contains(right, value)])


@reference("ARRAY_MAX")
@null_of_null
def array_max(context: CallContext, values: Sequence[Any]) -> Any:
    """The first maximum; NULLs are ignored."""
    present = [value for value in values if value is not None]
    return functools.reduce(lambda best, value: value if value > best else best, present) if present else None


@reference("ARRAY_MIN")
@null_of_null
def array_min(context: CallContext, values: Sequence[Any]) -> Any:
    present = [value for value in values if value is not None]
    return functools.reduce(lambda best, value: value if value < best else best, present) if present else None


@reference("ARRAY_JOIN")
@null_of_null
def array_join(context: CallContext, texts: Sequence[str | None], delimiter: str, null: str | None = None) -> str:
    """Joins strings; NULLs are skipped unless `null` replaces them."""
    shown = (null if text is None else text for text in texts)
    return delimiter.join(text for text in shown if text is not None)


@reference("MAP_KEYS")
@null_of_null
def map_keys(context: CallContext, pairs: dict[Any, Any]) -> list[Any]:
    return list(pairs)


@reference("MAP_VALUES")
@null_of_null
def map_values(context: CallContext, pairs: dict[Any, Any]) -> list[Any]:
    return list(pairs.values())


@reference("MAP_ENTRIES")
@null_of_null
def map_entries(context: CallContext, pairs: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list(pairs.items())


@reference("MAP_UNION")
@null_of_null
def map_union(context: CallContext, *maps: dict[Any, Any]) -> dict[Any, Any]:
    """Merges maps; a later value replaces an earlier one."""
    return {key: value for pairs in maps for key, value in pairs.items()}


@reference("MAP_FROM_ARRAYS")
@null_of_null
def map_from_arrays(context: CallContext, keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    if len(keys) != len(values):
        raise EvaluationError(
            f"MAP_FROM_ARRAYS takes as many values as keys, got {len(keys)} keys, {len(values)} values"
        )
    return _build_map(zip(keys, values, strict=True))

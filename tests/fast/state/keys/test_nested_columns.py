"""Lists and maps as keys in columns: grouping, hashing and comparison equal those of the values, in any column
slice and for any order of map entries.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.aggregation.groups import groups_of
from millstream.runtime.joins.matching import key_numbers
from millstream.state.keys import nested_columns
from millstream.state.keys.hashing import xxhash64_column
from millstream.state.keys.hashing_reference import hash_value
from millstream.state.keys.key_columns import key_column_of_arrow, normalised, same

FLOATS = st.sampled_from([0.0, -0.0, math.nan, 1.5]) | st.none()
TEXTS = st.sampled_from(["", "a", "ab", "b"])
LISTS = st.lists(FLOATS, max_size=3)
ENTRIES = st.dictionaries(TEXTS, st.none() | st.integers(0, 1), max_size=3).map(lambda each: list(each.items()))
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "lists": (pa.list_(pa.float64()), LISTS),
    "lists of lists": (pa.list_(pa.list_(pa.string())), st.lists(st.none() | st.lists(TEXTS, max_size=2), max_size=2)),
    "maps": (pa.map_(pa.string(), pa.int32()), ENTRIES.flatmap(st.permutations)),
    "maps of lists": (
        pa.map_(pa.int64(), pa.list_(pa.float64())),
        st.dictionaries(st.integers(0, 2), LISTS, max_size=3).map(lambda each: list(each.items())),
    ),
    "rows with both": (
        pa.struct({"a": pa.list_(pa.float64()), "m": pa.map_(pa.string(), pa.int32())}),
        st.fixed_dictionaries({"a": st.none() | LISTS, "m": st.none() | ENTRIES.flatmap(st.permutations)}),
    ),
    "lists of maps": (
        pa.list_(pa.map_(pa.string(), pa.int32())),
        st.lists(st.none() | ENTRIES.flatmap(st.permutations), max_size=2),
    ),
}


def identity(value: Any, kind: pa.DataType) -> Any:
    """The reference identity of a value: two values are one key exactly if their identities are equal."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return tuple(identity(value[field.name], field.type) for field in kind)
    if pa.types.is_map(kind):
        return frozenset((identity(key, kind.key_type), identity(item, kind.item_type)) for key, item in value)
    if pa.types.is_list(kind):
        return ("list", *(identity(item, kind.value_type) for item in value))
    if pa.types.is_floating(kind):
        return "NaN" if value != value else value + 0.0
    return value


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """A column, which may be a slice of a larger one."""
    kind, values = draw(st.sampled_from(list(KINDS.values())))
    rows = draw(st.lists(st.none() | values, max_size=12))
    start = draw(st.integers(0, 2))
    return pa.array(rows, kind).slice(min(start, len(rows)))


@given(columns())
def test_groups_of_nested_values_are_those_of_equal_values(column: pa.Array) -> None:
    expected = [identity(value, column.type) for value in column.to_pylist()]
    groups = groups_of(column)
    assert len(set(groups.codes.tolist())) == groups.count == len(set(expected))
    first = dict(zip(groups.codes.tolist(), expected, strict=True))
    assert [first[code] for code in groups.codes.tolist()] == expected


@given(columns(), st.randoms(use_true_random=False))
def test_comparison_of_nested_values_is_equality(column: pa.Array, random: Any) -> None:
    other = column.take(pa.array([random.randrange(len(column)) for _ in range(len(column))], pa.int64()))
    pairs = zip(column.to_pylist(), other.to_pylist(), strict=True)
    expected = [identity(a, column.type) == identity(b, column.type) for a, b in pairs]
    assert same(column, other).tolist() == expected
    assert [
        a == b for a, b in zip(*(codes.tolist() for codes in key_numbers([column, other])), strict=True)
    ] == expected


@given(columns())
def test_equal_nested_values_have_one_hash_which_equals_the_reference(column: pa.Array) -> None:
    keys = key_column_of_arrow(column)
    hashes: dict[Any, int] = {}
    for value, code in zip(column.to_pylist(), keys.hashes.tolist(), strict=True):
        assert hashes.setdefault(identity(value, column.type), code) == code
    slow = [hash_value(value, column.type) for value in keys.array.to_pylist()]
    assert xxhash64_column(keys.array).tolist() == keys.hashes.tolist() == slow


@given(columns())
def test_a_normalised_column_has_equal_values_in_canonical_form(column: pa.Array) -> None:
    plain = normalised(column)
    assert plain.type == column.type
    forms: dict[Any, str] = {}
    for old, new in zip(column.to_pylist(), plain.to_pylist(), strict=True):
        assert identity(old, column.type) == identity(new, column.type)
        assert forms.setdefault(identity(new, column.type), repr(new)) == repr(new)


def test_map_keys_that_share_a_hash_have_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_columns, "xxhash64_column", lambda array: np.zeros(len(array), dtype=np.int64))
    written = pa.array(
        [[("b", 2), ("a", 1), ("c", 3)], [("c", 3), ("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int64())
    )
    first, second = normalised(written).to_pylist()
    assert first == second == [("a", 1), ("b", 2), ("c", 3)]


def test_long_lists_are_numbered_at_once() -> None:
    lists = pa.array([list(range(100_000)), list(range(100_000)), [*range(99_999), -1]], pa.list_(pa.int64()))
    assert groups_of(lists).codes.tolist() == [0, 0, 1]

"""Key equality is the same wherever keys are hashed, numbered, compared, stored and consolidated, also if nested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.nested_keys import KEYS, NANS, TYPED, Account, identity

from millstream.common import Row, Types
from millstream.common.typeinfo import TypeInformation
from millstream.records.batch import Batch
from millstream.runtime.exchange.key_classes import decode_key
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_map_keys
from millstream.runtime.keyed.keyed_backend import GatheredKeys, KeyRange, visits
from millstream.state.keys.canonical import canonical_hash
from millstream.state.keys.hashing_reference import hash_value
from millstream.state.keys.key_columns import KeyColumn, key_column, key_column_of_arrow, normalised, same
from millstream.state.keys.settled_keys import settled_keys
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.state_table import StateTable, TableSetting
from millstream.storage import open_store

TYPED_BATCHES = st.sampled_from(list(TYPED)).flatmap(
    lambda name: st.tuples(st.just(TYPED[name][0]), st.lists(TYPED[name][1], min_size=1, max_size=10))
)
BATCHES = st.tuples(st.none(), st.lists(KEYS, min_size=1, max_size=10)) | TYPED_BATCHES
Given = tuple[TypeInformation | None, list[Any]]
ALL = KeyRange(range(128), 128)
SEGMENTS = OpenSegments(open_store("memory://key-forms"))
SETTING = TableSetting("t", 1, 0, "n", ALL.groups, 0, SEGMENTS, decode_key=decode_key)


def numbers(keys: list[Any]) -> list[int]:
    """The number of each key's identity, by first occurrence."""
    seen: dict[Any, int] = {}
    return [seen.setdefault(identity(key), len(seen)) for key in keys]


def renumbered(codes: Any) -> list[int]:
    return numbers(list(map(str, codes)))


def _numbers_by_column(column: KeyColumn) -> list[int]:
    records = Batch.of_values(list(range(len(column))), Types.LONG())
    (visit,) = visits(records, GatheredKeys(column), ALL)
    return renumbered(visit.codes)


@given(BATCHES)
@settings(max_examples=400, deadline=None)
def test_keys_share_a_number_exactly_if_they_are_equal(drawn: Given) -> None:
    key_type, keys = drawn
    expected = numbers(keys)
    column = key_column(keys, key_type)
    assert _numbers_by_column(column) == expected
    assert renumbered(key_numbers([column.array])[0]) == expected
    gathered = GatheredKeys.of_values(settled_keys(keys, key_type, decode_key), key_type)
    assert gathered.codes is not None and renumbered(gathered.codes) == expected
    # Unequal keys may share a hash, as a value and a 1-tuple of it do in Spark.
    assert len(set(zip(expected, column.hashes.tolist(), strict=True))) == len(set(expected))


@given(BATCHES)
@settings(max_examples=300, deadline=None)
def test_a_key_hashes_and_routes_like_the_reference_and_any_equal_key(drawn: Given) -> None:
    key_type, keys = drawn
    column = key_column(keys, key_type)
    settled = key_column(settled_keys(keys, key_type, decode_key), key_type)
    assert column.hashes.tolist() == settled.hashes.tolist()
    assert column.partitions(7, 128).tolist() == settled.partitions(7, 128).tolist()
    if column.array.type == pa.binary():
        assert column.hashes.tolist() == [canonical_hash(key) for key in keys]
    else:
        assert column.hashes.tolist() == [hash_value(value, column.array.type) for value in column.array.to_pylist()]


@given(BATCHES, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_a_normalised_key_is_the_one_that_the_store_returns(drawn: Given, chance: Any) -> None:
    key_type, keys = drawn
    settled = settled_keys(keys, key_type, decode_key)
    table = StateTable("t", key_type, 128, None)
    table.begin(SETTING, ())
    stored = table.keys_of(key_column(keys, key_type).array)
    assert settled == stored and list(map(repr, settled)) == list(map(repr, stored))
    assert len(set(settled)) == len(set(numbers(keys)))  # one dictionary key each
    # Which of the equal keys came first makes no difference.
    order = list(range(len(keys)))
    chance.shuffle(order)
    assert settled_keys([keys[i] for i in order], key_type, decode_key) == [settled[i] for i in order]
    assert list(map(repr, settled_keys(settled, key_type, decode_key))) == list(map(repr, settled))


@given(BATCHES)
@settings(max_examples=300, deadline=None)
def test_the_last_row_of_equal_keys_wins_in_a_table(drawn: Given) -> None:
    key_type, keys = drawn
    column = key_column(keys, key_type)
    stored_type = None if column.array.type == pa.binary() else column.array.type
    changes = TableChanges(TableLayout("t", stored_type, value_type=pa.int64()))
    for at in range(len(keys)):
        changes.put(column.take(np.array([at])), pa.array([at]))
    last = {identity(key): at for at, key in enumerate(keys)}
    assert sorted(changes.rows().column("value").to_pylist()) == sorted(last.values())


@given(TYPED_BATCHES)
@settings(max_examples=200, deadline=None)
def test_unnormalised_columns_are_compared_by_the_same_rule(drawn: Given) -> None:
    """As in stores written by older releases."""
    key_type, keys = drawn
    column = key_column(keys, key_type)
    rows = np.arange(len(keys)).repeat(len(keys))
    others = np.tile(np.arange(len(keys)), len(keys))
    alike = same(column.array.take(pa.array(rows)), column.array.take(pa.array(others)))
    expected = numbers(keys)
    assert alike.tolist() == [expected[a] == expected[b] for a, b in zip(rows, others, strict=True)]


@given(st.lists(st.none() | NANS | st.sampled_from([0.0, -0.0, 1.5]), max_size=12), st.sampled_from([4, 8]))
@settings(max_examples=200, deadline=None)
def test_a_normalised_column_has_one_bit_pattern_per_key_and_unchanged_hashes(floats: list[Any], width: int) -> None:
    kind = pa.float64() if width == 8 else pa.float32()
    raw = pa.array(floats, kind)
    nested = pa.StructArray.from_arrays([raw, pa.array([[f] for f in floats], pa.list_(kind))], names=["a", "b"])
    for array in (raw, nested, nested[1:]):
        column = key_column_of_arrow(array)
        assert normalised(column.array) == column.array or "nan" in str(array)
        assert column.hashes.tolist() == key_column_of_arrow(column.array).hashes.tolist()
        assert same(array, column.array).all()
    bits = normalised(raw).drop_null()
    patterns = set(np.frombuffer(bits.to_numpy(zero_copy_only=False).tobytes(), f"<u{width}").tolist())
    assert len(patterns) == len({identity(f) for f in floats if f is not None})


@given(st.lists(KEYS, min_size=1, max_size=10))
@settings(max_examples=300, deadline=None)
def test_equal_untyped_map_keys_are_one_in_memory_and_in_the_store(keys: list[Any]) -> None:
    codec = task_map_keys(None, "the map keys of a test")
    # A map stores keys unchanged except for numbers: a row stays a row, a named tuple one of its class.
    shapes = [repr(_shape(key)) for key in keys]
    expected = renumbered(zip(shapes, map(identity, keys), strict=True))
    settled = list(map(codec.settle, keys))
    in_memory: dict[Any, int] = {}
    pairs = zip(shapes, settled, strict=True)
    assert [in_memory.setdefault(pair, len(in_memory)) for pair in pairs] == expected
    encoded = codec.encode(settled)
    assert renumbered(encoded.to_pylist()) == expected
    assert list(map(repr, codec.decode(encoded))) == list(map(repr, settled))


def _shape(key: Any) -> Any:
    """The classes of a key's parts."""
    if isinstance(key, Row):
        return key._fields, [_shape(part) for part in key]
    if isinstance(key, Account):
        return Account, _shape(key.number)
    return (type(key), [_shape(part) for part in key]) if isinstance(key, tuple) else None

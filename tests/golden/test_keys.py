"""Keys: equality, routing to key groups, and values that are rejected as keys."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import subprocess
import sys
import uuid
from collections import namedtuple
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.time import Instant
from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.errors import ConfigurationError, ProgramError, StoreDamagedError, TypeMismatchError
from millstream.runtime.exchange.key_classes import decode_key as decode
from millstream.state.keys.canonical import canonical_bytes, canonical_hash
from millstream.state.keys.hashing import xxhash64_column
from millstream.state.keys.key_columns import key_column, key_column_of_arrow, key_group_range


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Size(enum.IntEnum):
    SMALL = 1


class Lane(str, enum.Enum):  # noqa: UP042 - such keys exist
    LEFT = "left"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class UserId:
    number: int
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class OrderId:
    number: int


@dataclasses.dataclass
class Open:
    number: int


BERLIN = ZoneInfo("Europe/Berlin")
Point = namedtuple("Point", "x y")

SCALAR_KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.integers(-(2**63) - 2, -(2**63) + 2),
    st.floats(),
    st.integers(-3, 3).map(float),
    st.sampled_from([2.0**63, -(2.0**63), 2.0**64, 1e300, 0.5, -0.0]),
    st.decimals(allow_nan=False, places=3, min_value=-9, max_value=9),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(max_size=40),
    st.binary(max_size=40),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([dt.UTC, BERLIN])).filter(
        lambda moment: dt.MINYEAR < moment.year < dt.MAXYEAR
    ),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([*Color, Size.SMALL, Lane.LEFT, "left", Access.READ | Access.WRITE, UserId(1), OrderId(1)]),
    st.builds(Instant, st.integers(-5, 5), st.integers(0, 9)),
)
# Compared separately, because numpy's == with a tuple gives an array.
NUMPY_KEYS = st.integers(-9, 9).map(np.int16) | st.floats(width=32).map(np.float32) | st.booleans().map(np.bool_)
KEYS = st.recursive(
    SCALAR_KEYS,
    lambda part: st.lists(part, max_size=3).map(tuple) | st.builds(Point, part, part) | st.builds(Row, part, part),
    max_leaves=5,
)


def hashes(*keys: Any) -> list[int]:
    """Each key's hash, alone and in a batch of all keys: the two must agree."""
    alone = [int(key_column([key], None).hashes[0]) for key in keys]
    assert key_column(list(keys), None).hashes.tolist() == alone
    return alone


@given(st.lists(KEYS | NUMPY_KEYS, max_size=12))
@settings(max_examples=300, deadline=None)
def test_a_batch_of_mixed_keys_hashes_like_its_keys_one_by_one(keys: list[Any]) -> None:
    assert key_column(keys, None).hashes.tolist() == [canonical_hash(key) for key in keys]


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_batch_of_one_type_hashes_like_its_keys_one_by_one(data: st.DataObject) -> None:
    kinds = [
        st.integers(),
        st.floats(),
        st.decimals(-9, 9),
        st.text(),
        st.datetimes(),
        st.tuples(st.floats(), st.text()),
    ]
    keys = data.draw(st.lists(data.draw(st.sampled_from(kinds)), min_size=1, max_size=8))
    assert key_column(keys, None).hashes.tolist() == [canonical_hash(key) for key in keys]


@given(KEYS, KEYS)
@settings(max_examples=300, deadline=None)
def test_values_are_one_key_exactly_if_they_are_equal(left: Any, right: Any) -> None:
    same = canonical_bytes(left) == canonical_bytes(right)
    if left == right:
        assert same and canonical_hash(left) == canonical_hash(right)
    elif same:
        assert "nan" in f"{left}{right}".lower() or "Row" in f"{left!r}{right!r}"


@pytest.mark.parametrize(
    "one_key",
    [
        (1, True, 1.0, decimal.Decimal("1.00"), Size.SMALL, np.int8(1), np.float32(1), np.bool_(True)),
        (0, False, 0.0, -0.0, decimal.Decimal("-0")),
        (0.5, decimal.Decimal("0.50"), np.float64(0.5)),
        (2**63, 2.0**63, decimal.Decimal(2**63)),
        (int(1e300), 1e300),
        (decimal.Decimal("0.1"), decimal.Decimal("0.100")),
        (math.nan, -math.nan, decimal.Decimal("nan"), np.float32("nan")),
        (math.inf, decimal.Decimal("inf")),
        ("left", Lane.LEFT, np.str_("left")),
        (b"x", np.bytes_(b"x")),
        ((1, "a"), (True, "a"), Point(1.0, "a"), Row(1, "a"), Row(number=1, letter="a")),
        (Row("a"), Row.of_kind(RowKind.DELETE, "a")),
        (UserId(1, "x"), UserId(1, "y")),
        (Color.RED, Color(1)),
        (dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, 14, tzinfo=BERLIN)),
        (dt.datetime(2024, 7, 1), pd.Timestamp("2024-07-01")),
    ],
    ids=lambda keys: repr(keys[0]),
)
def test_values_that_compare_equal_in_python_are_one_key(one_key: tuple[Any, ...]) -> None:
    assert len(set(hashes(*one_key))) == 1
    assert len(set(key_column(list(one_key), None).array.to_pylist())) == 1


def test_values_that_differ_in_class_are_different_keys() -> None:
    empty_or_small = [None, (), (None,), 1, "1", b"1", (1,), 1.1, decimal.Decimal("1.1"), (1, (2, 3)), ((1, 2), 3)]
    run_together = [("a", "b"), ("asb",), ("ab",), (("a",), "b"), (("a", "b"),)]
    named = [UserId(1), OrderId(1), Color.RED, Color.GREEN, "RED", Access.READ, uuid.UUID(int=1), str(uuid.UUID(int=1))]
    day = dt.datetime(1970, 1, 2)
    times = [day, day.date(), day.time(), day.replace(tzinfo=dt.UTC), dt.timedelta(days=1), Instant(86400, 0)]
    different = [*empty_or_small, *run_together, *named, *times]
    assert len({canonical_bytes(key) for key in different}) == len(different)


def test_untyped_keys_hash_like_their_natural_column_in_spark() -> None:
    assert hashes(1) == xxhash64_column(pa.array([1], pa.int64())).tolist()
    assert hashes(1.5) == xxhash64_column(pa.array([1.5], pa.float64())).tolist()
    assert hashes("å", b"x", None)[:1] == xxhash64_column(pa.array(["å"])).tolist()
    assert hashes(2**64) == xxhash64_column(pa.array([decimal.Decimal(2**64)], pa.decimal128(38, 0))).tolist()
    assert hashes(("a", 1)) == xxhash64_column(pa.array([{"x": "a", "y": 1}])).tolist()
    assert hashes(dt.date(2024, 1, 1)) == xxhash64_column(pa.array([dt.date(2024, 1, 1)])).tolist()


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ({"a": 1}, r"tuple\(sorted\(key.items\(\)\)\)"),
        ({1}, r"tuple\(sorted\(key\)\)"),
        (frozenset([1]), r"tuple\(sorted\(key\)\)"),
        (bytearray(b"x"), r"bytes\(key\)"),
        (np.array([1]), r"tuple\(key.tolist\(\)\)"),
        (object(), "same in every process.*Use a str"),
        (Fraction(1, 3), "Use a str"),
        (Open(1), r"@dataclass\(frozen=True\)"),
        (UserId, "Use a str"),
        (dt.time(1, tzinfo=dt.UTC), r"replace\(tzinfo=None\)"),
        (pd.Timestamp(1), "nanoseconds"),
        ("\ud800", "surrogate"),
        (decimal.Decimal("1E+999999"), r"use str\(key\)"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_value_without_stable_equality_is_rejected_as_a_key_with_an_alternative(key: Any, advice: str) -> None:
    for batch in ([key], ["a", key], [(1, key)], [(1, "a"), (1, key)]):
        with pytest.raises(ProgramError, match=advice):
            key_column(batch, None)
    with pytest.raises(ProgramError, match=advice):
        canonical_bytes(key)


def test_keys_are_the_same_in_another_process() -> None:
    program = (
        "from millstream.state.keys.key_columns import key_column; import enum\n"
        "class Color(enum.Enum): RED = 1\n"
        "print(key_column(['a', 1, (b'x', None), Color.RED], None).hashes.tolist())"
    )
    run = [sys.executable, "-c", program]
    printed = subprocess.run(run, capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert printed.stdout.strip() == str(key_column(["a", 1, (b"x", None), Color.RED], None).hashes.tolist())


def test_a_declared_type_hashes_like_its_column_in_spark() -> None:
    assert key_column([1], Types.INT()).hashes.tolist() == xxhash64_column(pa.array([1], pa.int32())).tolist()
    assert key_column([1], Types.LONG()).hashes.tolist() == hashes(1)
    assert key_column([1], Types.INT()).hashes.tolist() != hashes(1)
    assert key_column(["a", None], Types.STRING()).hashes.tolist() == hashes("a", None)
    moment = dt.datetime(2024, 1, 1)
    assert key_column([moment], Types.SQL_TIMESTAMP()).hashes.tolist() == hashes(moment)


def test_a_declared_row_hashes_field_after_field_and_keeps_its_columns() -> None:
    row_type = Types.ROW_NAMED(["user", "ad"], [Types.STRING(), Types.INT()])
    keys = key_column([Row("a", 1), ("b", 2), None, Row.of_kind(RowKind.DELETE, "a", 1)], row_type)
    user = xxhash64_column(pa.array(["a", "b", None, "a"]))
    assert keys.hashes.tolist() == xxhash64_column(pa.array([1, 2, None, 1], pa.int32()), user).tolist()
    assert keys.array.to_pylist() == [{"user": "a", "ad": 1}, {"user": "b", "ad": 2}, None, {"user": "a", "ad": 1}]
    assert key_column([(), ()], Types.TUPLE([])).array.to_pylist() == [{}, {}]


def test_a_declared_float_has_one_zero_at_any_depth() -> None:
    row_type = Types.TUPLE([Types.FLOAT(), Types.LIST(Types.DOUBLE()), Types.TUPLE([Types.DOUBLE(), Types.STRING()])])
    keys = key_column([(0.0, [0.0, 1.0], (0.0, "a")), (-0.0, [-0.0, 1.0], (-0.0, "a")), None], row_type)
    assert keys.hashes[0] == keys.hashes[1]
    for array in (keys.array, key_column_of_arrow(keys.array[1:]).array):
        assert all("-0.0" not in str(key) for key in array.to_pylist())
    assert str(keys.array[0]) == str(keys.array[1]) and keys.array[2].as_py() is None


def test_declared_decimals_and_pickled_fields_are_compared_by_value() -> None:
    first, second = key_column([decimal.Decimal("1.0"), decimal.Decimal("1.00")], Types.BIG_DEC()).hashes
    assert first == second == hashes(1)[0]
    pair = Types.TUPLE([Types.STRING(), Types.PICKLED_BYTE_ARRAY()])
    assert key_column([("a", 1), ("a", 1.0)], pair).hashes.tolist() == hashes(("a", 1)) * 2
    assert key_column([True], Types.PICKLED_BYTE_ARRAY()).hashes.tolist() == hashes(1)


def test_a_declared_map_is_rejected_and_a_value_of_another_type_is_reported() -> None:
    with pytest.raises(ProgramError, match="map<string, int64"):
        key_column([{"a": 1}], Types.MAP(Types.STRING(), Types.LONG()))
    with pytest.raises(TypeMismatchError, match="'x'"):
        key_column(["x"], Types.LONG())


def test_the_type_of_an_untyped_key_column_does_not_depend_on_the_batch() -> None:
    assert {key_column(keys, None).array.type for keys in ([], [1], ["a"], [1, "a"])} == {pa.binary()}


@given(st.integers(1, 300), st.integers(1, 300), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@settings(deadline=None)  # speed is not asserted
def test_a_key_is_routed_to_the_subtask_that_owns_its_key_group(
    parallelism: int, extra: int, values: list[int]
) -> None:
    max_parallelism = parallelism + extra - 1
    keys = key_column(values, None)
    ranges = [key_group_range(partition, parallelism, max_parallelism) for partition in range(parallelism)]
    assert [group for owned in ranges for group in owned] == list(range(max_parallelism))
    groups, targets = keys.groups(max_parallelism).tolist(), keys.partitions(parallelism, max_parallelism).tolist()
    assert groups == [int(h) % max_parallelism for h in keys.hashes]
    assert targets == [group * parallelism // max_parallelism for group in groups]
    assert all(group in ranges[target] for group, target in zip(groups, targets, strict=True))


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(0, 128), (129, 128), (1, 0), (1, 32_769)])
def test_an_invalid_parallelism_is_rejected(parallelism: int, max_parallelism: int) -> None:
    with pytest.raises(ConfigurationError, match=r"pipeline.max-parallelism|parallelism.default"):
        key_column([1], None).partitions(parallelism, max_parallelism)


@given(KEYS)
@settings(max_examples=400, deadline=None)
def test_a_key_decodes_from_its_bytes_to_an_equal_key(key: Any) -> None:
    data = canonical_bytes(key)
    back = decode(data)
    assert canonical_bytes(back) == data
    assert canonical_hash(back) == canonical_hash(key)


@pytest.mark.parametrize(
    "key",
    [1, "a", b"a", None, 0.5, (1, ("a", None)), Color.RED, Access.READ | Access.WRITE, OrderId(7), uuid.UUID(int=5)],
    ids=repr,
)
def test_a_simple_key_decodes_unchanged(key: Any) -> None:
    back = decode(canonical_bytes(key))
    assert back == key and type(back) is type(key)


def test_a_field_excluded_from_the_key_decodes_to_its_default() -> None:
    assert decode(canonical_bytes(UserId(1, "a note"))).note == ""


def test_a_class_that_cannot_be_imported_is_resolved_while_it_is_alive() -> None:
    @dataclasses.dataclass(frozen=True)
    class Local:
        number: int

    assert decode(canonical_bytes(Local(3))) == Local(3)


def test_a_missing_class_and_invalid_key_bytes_are_reported() -> None:
    data = canonical_bytes(OrderId(1)).replace(b"OrderId", b"OtherId")
    with pytest.raises(ProgramError, match=r"class OtherId of module .*Move the class back"):
        decode(data)
    for nonsense in (b"", b"?", b"i123", b"(\x00\x00\x00\x09a", canonical_bytes((1, 2))[:-1]):
        with pytest.raises(StoreDamagedError, match="not the stored form of a key"):
            decode(nonsense)

"""Columns hash like their values one by one, and both match Spark's published figures."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.errors import ProgramError
from millstream.state.keys.hashing import LONG_RUN_BYTES, LONG_RUNS_MAX, xxhash64_column
from millstream.state.keys.hashing_reference import hash_bytes, hash_value

Column: TypeAlias = tuple[pa.DataType, list[Any]]


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    exact = decimal.Context(prec=80)
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1) | st.integers(-300, 300)
    return unscaled.map(lambda n: exact.scaleb(decimal.Decimal(n), -scale))


SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), st.text(max_size=40)),
    (pa.large_string(), st.text(max_size=10)),
    (pa.binary(), st.binary(max_size=110)),
    (pa.binary(7), st.binary(min_size=7, max_size=7)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    (pa.time64("us"), st.times()),
    (pa.duration("us"), st.timedeltas(dt.timedelta(days=-(10**6)), dt.timedelta(days=10**6))),
    (pa.decimal128(9, 2), decimals(9, 2)),
    (pa.decimal128(18, 0), decimals(18, 0)),
    (pa.decimal128(19, 4), decimals(19, 4)),
    (pa.decimal128(38, 10), decimals(38, 10)),
]


@st.composite
def typed_columns(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type and the values of a column, nulls included."""
    shape = draw(st.sampled_from(["scalar"] * 3 + ["list", "pair", "struct"])) if depth else "scalar"
    if shape == "scalar":
        kind, values = draw(st.sampled_from(SCALARS))
        return kind, st.none() | values
    if shape in ("list", "pair"):
        kind, values = draw(typed_columns(depth=depth - 1))
        if shape == "list":
            return pa.list_(kind), st.none() | st.lists(values, max_size=4)
        return pa.list_(kind, 2), st.none() | st.lists(values, min_size=2, max_size=2)
    fields = draw(st.lists(typed_columns(depth=depth - 1), min_size=1, max_size=3))
    names = [f"f{i}" for i in range(len(fields))]
    struct_type = pa.struct([(name, kind) for name, (kind, _) in zip(names, fields, strict=True)])
    return struct_type, st.none() | st.fixed_dictionaries({n: v for n, (_, v) in zip(names, fields, strict=True)})


@st.composite
def columns(draw: st.DrawFn) -> Column:
    kind, values = draw(typed_columns())
    return kind, draw(st.lists(values, min_size=1, max_size=12))


@given(columns(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 3))
@example((pa.float64(), [0.0, -0.0, math.nan, math.inf]), 42, 0)
@settings(max_examples=400, deadline=None)
def test_a_column_hashes_like_its_values_one_by_one(column: Column, seed: int, cut: int) -> None:
    kind, values = column
    expected = [hash_value(value, kind, seed) for value in values]
    array = pa.array(values, kind)
    assert xxhash64_column(array, seed).tolist() == expected
    assert xxhash64_column(array[cut:], seed).tolist() == expected[cut:]


@given(columns())
@settings(max_examples=40, deadline=None)
def test_more_rows_than_one_hash_batch_hash_the_same(column: Column) -> None:
    kind, values = column
    times = 40_000 // len(values)
    array = pa.concat_arrays([pa.array(values, kind)] * times)
    assert xxhash64_column(array).tolist() == [hash_value(value, kind) for value in values] * times


def test_spark_documentation_example_holds() -> None:
    columns = (pa.array(["Spark"]), pa.array([[123]], pa.list_(pa.int32())), pa.array([2], pa.int32()))
    hashes: Any = 42
    for column in columns:
        hashes = xxhash64_column(column, hashes)
    assert hashes.tolist() == [5602566077635097486]


def test_published_xxh64_figures_hold() -> None:
    assert hash_bytes(b"", 0) & (2**64 - 1) == 0xEF46DB3751D8E999
    assert hash_bytes(b"a", 0) & (2**64 - 1) == 0xD24EC4F1A98C6E5B
    assert hash_bytes(b"abc", 0) & (2**64 - 1) == 0x44BC2CF5AD770999


@pytest.mark.parametrize("length", [*range(100), 127, 128, 1000, 1023, 1024, 1025, 5000])
def test_byte_runs_of_every_length_agree_with_the_reference(length: int) -> None:
    rng = np.random.default_rng(length)
    runs = [rng.bytes(length), b"", rng.bytes(length), b"x" * (length // 2)]
    assert xxhash64_column(pa.array(runs)).tolist() == [hash_bytes(run, 42) for run in runs]


@pytest.mark.parametrize("long_runs", [1, LONG_RUNS_MAX - 1, LONG_RUNS_MAX, LONG_RUNS_MAX + 1, 3 * LONG_RUNS_MAX])
def test_few_and_many_long_runs_agree_with_the_reference(long_runs: int) -> None:
    rng = np.random.default_rng(long_runs)
    runs = [rng.bytes(LONG_RUN_BYTES + 7 * i) for i in range(long_runs)] + [b"short", b""]
    assert xxhash64_column(pa.array(runs)).tolist() == [hash_bytes(run, 42) for run in runs]


def test_null_keeps_the_seed_of_its_row() -> None:
    seeds = np.array([1, -2, 3])
    for kind in (pa.null(), pa.int64(), pa.string(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])):
        assert xxhash64_column(pa.array([None] * 3, kind), seeds).tolist() == [1, -2, 3]


def test_zeros_hash_alike_and_all_nans_hash_alike() -> None:
    payload_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF0000000000123))[0]
    for kind in (pa.float32(), pa.float64()):
        zero, minus_zero = xxhash64_column(pa.array([0.0, -0.0], kind))
        nan, other_nan = xxhash64_column(pa.array(np.array([math.nan, payload_nan]), from_pandas=False).cast(kind))
        assert zero == minus_zero and nan == other_nan and zero != nan


def test_finer_and_coarser_time_units_hash_as_microseconds() -> None:
    moment = dt.datetime(1969, 7, 20, 20, 17, 40)
    expected = xxhash64_column(pa.array([moment], pa.timestamp("us")))
    for unit in ("s", "ms", "ns"):
        assert xxhash64_column(pa.array([moment], pa.timestamp(unit))) == expected
    assert xxhash64_column(pa.array([-1], pa.timestamp("ns"))) == xxhash64_column(pa.array([-1], pa.timestamp("us")))
    noon = xxhash64_column(pa.array([dt.time(12)], pa.time64("us")))
    for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("ns")):
        assert xxhash64_column(pa.array([dt.time(12)], kind)) == noon


def test_a_dictionary_column_hashes_like_its_values() -> None:
    plain = pa.array(["a", None, "b", "a"])
    assert xxhash64_column(plain.dictionary_encode()).tolist() == xxhash64_column(plain).tolist()


def test_an_empty_column_has_no_hashes() -> None:
    for kind in (pa.int64(), pa.string(), pa.list_(pa.int64()), pa.struct([]), pa.decimal128(38, 0)):
        assert xxhash64_column(pa.array([], kind)).tolist() == []


@pytest.mark.parametrize("kind", [pa.uint64(), pa.decimal256(50, 2)], ids=str)
def test_a_type_spark_cannot_hash_is_rejected_by_name(kind: pa.DataType) -> None:
    values = {"uint64": 1}.get(str(kind).split("<")[0], decimal.Decimal(1))
    with pytest.raises(ProgramError, match=f"Arrow type {str(kind).split('(')[0].split('<')[0]}"):
        xxhash64_column(pa.array([values], kind))

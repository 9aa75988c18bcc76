"""The kernels of SQL aggregates agree with the reference, however rows are cut and combined."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.aggregation.groups import Groups, groups_of
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.sql_reference import measured
from millstream.expressions import nested_types as nested
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.records.bitmaps import bitmaps_of
from millstream.records.columns import from_record_batch, to_record_batch
from millstream.records.table_type import TableValueType
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
NARROW, WIDE = types.DecimalType(10, 2), types.DecimalType(38, 4)


def measure(kind: str, argument: DataType, result: DataType, detail: str = "") -> BoundAggregate:
    return BoundAggregate(
        "m", kind, (AggregateArgument(TableValueType(argument), 0),), result=TableValueType(result), detail=detail
    )


def distinct(inner: BoundAggregate) -> BoundAggregate:
    return BoundAggregate("m", "distinct", inner.arguments, result=inner.result, inner=inner)


def exact(unscaled: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -4))


def bitmap(numbers: list[int]) -> bytes:
    made: bytes = bitmaps_of(np.zeros(len(numbers), np.int64), np.array(numbers, np.uint32), 1)[0].as_py()
    return made


BITMAPS = st.lists(st.integers(65_530, 65_545), max_size=9).map(bitmap)
NARROW_VALUES = st.decimals(-99_999_999, 99_999_999, places=2)
WIDE_VALUES = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: exact(n))
TEXT = types.VarCharType(9)
MEASURES: dict[str, tuple[BoundAggregate, st.SearchStrategy[Any]]] = {
    "sum of INT": (measure("sum", types.IntType(), types.IntType()), st.integers(-(1 << 31), (1 << 31) - 1)),
    "sum of TINYINT": (measure("sum", types.TinyIntType(), types.TinyIntType()), st.integers(-128, 127)),
    "sum of BIGINT": (measure("sum", types.BigIntType(), types.BigIntType()), LONGS),
    "average of BIGINT": (measure("whole_avg", types.BigIntType(), types.BigIntType()), LONGS),
    "average of SMALLINT": (measure("whole_avg", types.SmallIntType(), types.SmallIntType()), st.integers(-9, 9)),
    "sum of DECIMAL": (measure("decimal_sum", NARROW, types.DecimalType(38, 2)), NARROW_VALUES),
    "sum of wide DECIMAL": (measure("decimal_sum", WIDE, types.DecimalType(38, 4)), WIDE_VALUES),
    "average of DECIMAL": (measure("decimal_avg", NARROW, types.DecimalType(38, 6)), NARROW_VALUES),
    "average of wide DECIMAL": (measure("decimal_avg", WIDE, types.DecimalType(38, 6)), WIDE_VALUES),
    "count": (measure("count", TEXT, types.BigIntType()), st.text(max_size=2)),
    "min of text": (measure("min", TEXT, TEXT), st.text(max_size=2)),
    "max of DECIMAL": (measure("max", WIDE, WIDE), WIDE_VALUES),
    "max of DATE": (measure("max", types.DateType(), types.DateType()), st.dates()),
    "min of TIMESTAMP_LTZ": (
        measure("min", types.LocalZonedTimestampType(3), types.LocalZonedTimestampType(3)),
        st.integers(-(10**9), 10**9).map(
            lambda ms: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)
        ),
    ),
    "max of BOOLEAN": (measure("max", types.BooleanType(), types.BooleanType()), st.booleans()),
    "first": (measure("first", TEXT, TEXT), st.text(max_size=2)),
    "last": (measure("last", TEXT, TEXT), st.text(max_size=2)),
    "distinct count": (distinct(measure("count", TEXT, types.BigIntType())), st.sampled_from("abc")),
    "distinct sum": (distinct(measure("sum", types.IntType(), types.IntType())), st.integers(0, 3)),
    "distinct sum of DECIMAL": (
        distinct(measure("decimal_sum", NARROW, types.DecimalType(38, 2))),
        st.sampled_from([Decimal("0.10"), Decimal("-2.00")]),
    ),
    "LISTAGG": (measure("listagg", TEXT, TEXT, "|"), st.text(max_size=2)),
    "COLLECT": (measure("multiset", TEXT, nested.MultisetType(TEXT)), st.sampled_from("abc")),
    "BITMAP_BUILD_AGG": (measure("bitmap", types.IntType(), types.BitmapType(), "build"), st.integers(-2, 70_000)),
    "BITMAP_BUILD_CARDINALITY_AGG": (
        measure("bitmap", types.IntType(), types.BigIntType(), "build"),
        st.integers(-(1 << 31), (1 << 31) - 1),
    ),
    **{
        f"BITMAP_{name.upper()}_AGG": (measure("bitmap", types.BitmapType(), types.BitmapType(), name), BITMAPS)
        for name in ("and", "or", "xor")
    },
    "distinct BITMAP_XOR_AGG": (
        distinct(measure("bitmap", types.BitmapType(), types.BitmapType(), "xor")),
        BITMAPS,
    ),
    "ARRAY_AGG": (measure("array", types.IntType(), nested.ArrayType(types.IntType())), st.integers(0, 9)),
}


def compute(of: BoundAggregate, values: list[Any], codes: list[int], groups: int, cut: int) -> list[Any]:
    """The results of the kernel, where rows before `cut` are combined first, like partials."""
    [kernel] = kernels_of([of])
    argument = of.arguments[0].type_info
    assert argument is not None
    column = to_record_batch(values, argument).column(0)
    at = np.arange(len(values))
    number = np.array(codes, dtype=np.int64)
    pieces = []
    for piece in (slice(0, cut), slice(cut, None)):
        lifted = kernel.lift([column[piece]], at[piece])
        present, local = np.unique(number[piece], return_inverse=True)
        pieces.append((kernel.combine(lifted, Groups(local, len(present))), present))
    parts = [pa.concat_arrays([first, second]) for first, second in zip(pieces[0][0], pieces[1][0], strict=True)]
    together = Groups(np.concatenate([present for _, present in pieces]), groups)
    results = kernel.results(kernel.combine(parts, together))
    assert results.type == kernel.result_kind
    batch = pa.record_batch([results], names=["value"])
    return from_record_batch(batch, of.result_type)


# One of many aggregates: a few examples each, more in a thorough profile.
FEW = max(6, settings.default.max_examples // 5)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_a_kernel_agrees_with_the_reference(name: str, data: st.DataObject) -> None:
    of, values_strategy = MEASURES[name]
    values = data.draw(st.lists(st.none() | values_strategy, min_size=1, max_size=12))
    codes = data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values)))
    codes = np.unique(codes, return_inverse=True)[1].tolist()  # every group has a row
    groups = max(codes) + 1
    cut = data.draw(st.integers(0, len(values)))
    expected = [measured(of, [v for v, c in zip(values, codes, strict=True) if c == g]) for g in range(groups)]
    assert compute(of, values, codes, groups, cut) == expected


@given(st.lists(st.none() | st.integers(0, 2), min_size=1, max_size=9), st.integers(0, 9))
def test_an_array_of_distinct_values_has_a_null_only_if_one_arrived(values: list[int | None], cut: int) -> None:
    of = distinct(measure("array", types.IntType(), nested.ArrayType(types.IntType())))
    [actual] = compute(of, values, [0] * len(values), 1, min(cut, len(values)))
    assert sorted(actual, key=str) == sorted(set(values), key=str)


VARIANCES = ["VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"]


@given(
    st.sampled_from(VARIANCES),
    st.lists(st.none() | st.integers(10**9, 10**9 + 50), min_size=1, max_size=9),
    st.integers(0, 9),
)
def test_a_variance_is_precise_for_values_close_together(detail: str, values: list[int | None], cut: int) -> None:
    of = measure("variance", types.BigIntType(), types.DoubleType(), detail)
    [actual] = compute(of, values, [0] * len(values), 1, min(cut, len(values)))
    expected = measured(of, values)
    assert (actual is None) == (expected is None)
    assert actual is None or math.isclose(actual, expected, rel_tol=1e-6, abs_tol=1e-6)


@given(data=st.data())
def test_sums_of_runs_are_those_of_their_rows(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["sum of DECIMAL", "average of BIGINT", "sum of wide DECIMAL", "distinct count"]))
    of, values_strategy = MEASURES[name]
    values = data.draw(st.lists(st.none() | values_strategy, min_size=1, max_size=9))
    [kernel] = kernels_of([of])
    assert of.arguments[0].type_info is not None
    parts = kernel.lift([to_record_batch(values, of.arguments[0].type_info).column(0)], np.arange(len(values)))
    bounds = st.tuples(st.integers(0, len(values) - 1), st.integers(1, len(values))).filter(lambda b: b[0] < b[1])
    runs = data.draw(st.lists(bounds, min_size=1, max_size=5))
    starts, stops = (np.array(each) for each in zip(*runs, strict=True))
    results = kernel.results(kernel.ranged(parts)(starts, stops))
    actual = from_record_batch(pa.record_batch([results], names=["value"]), of.result_type)
    assert actual == [measured(of, values[start:stop]) for start, stop in runs]


def test_a_sum_with_too_many_digits_is_null() -> None:
    of, _ = MEASURES["sum of wide DECIMAL"]
    large = exact(10**38 - 1)
    assert compute(of, [large, Decimal(0)], [0, 0], 1, 1) == [large]
    assert compute(of, [large, Decimal("0.0001")], [0, 0], 1, 1) == [None]
    assert compute(of, [exact(1 - 10**38)] * 2, [0, 0], 1, 0) == [None]


@given(
    st.integers(-(1 << 63), (1 << 63) - 5_000), st.lists(st.integers(0, 4_000), min_size=1, max_size=9), st.booleans()
)
def test_integer_groups_agree_by_position_and_by_dictionary(low: int, steps: list[int], is_dense: bool) -> None:
    rows = np.resize(np.array(steps, dtype=np.int64), 1_500)
    values = low + (np.arange(1_500) % 700 if is_dense else rows)
    actual = groups_of(pa.array(values))
    assert actual.count == len(set(values.tolist())) == len(set(actual.codes.tolist())) == int(actual.codes.max()) + 1
    assert len(set(zip(values.tolist(), actual.codes.tolist(), strict=True))) == actual.count

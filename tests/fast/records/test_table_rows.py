"""Rows of tables: values into columns and back, as `conform` says, and what does not fit."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Instant, Row, RowKind
from millstream.errors import ProgramError, TypeMismatchError
from millstream.expressions import nested_types as nested
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.records.batch import Batch
from millstream.records.columns import from_record_batch, stream_schema, to_record_batch
from millstream.records.conformance import conform
from millstream.records.table_type import TableRowType, TableValueType
from millstream.records.unpickling import unpickled
from millstream.state.keys.key_columns import is_stored_as_is, key_column, key_column_of_arrow

MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    types.BooleanType(): st.booleans(),
    types.TinyIntType(): st.integers(-128, 127),
    types.SmallIntType(): st.integers(-(1 << 15), (1 << 15) - 1),
    types.IntType(): st.integers(-(1 << 31), (1 << 31) - 1),
    types.BigIntType(): st.integers(-(1 << 63), (1 << 63) - 1),
    types.FloatType(): st.floats(width=32, allow_nan=False) | st.integers(-9, 9),
    types.DoubleType(): st.floats(allow_nan=False) | st.integers(-9, 9),
    types.DecimalType(10, 2): st.decimals(-99_999_999, 99_999_999, places=4) | st.integers(-9, 9),
    types.DecimalType(38, 10): st.decimals(-(10**27), 10**27, places=12),
    types.VarCharType(5): st.text(max_size=9),
    types.CharType(3): st.text(max_size=3),
    types.VarBinaryType(9): st.binary(max_size=9),
    types.DateType(): st.dates(),
    types.TimeType(): st.times(),
    types.TimestampType(0): MOMENTS,
    types.TimestampType(3): MOMENTS,
    types.TimestampType(6): MOMENTS,
    types.TimestampType(9): MOMENTS,
    types.LocalZonedTimestampType(3): st.one_of(
        MOMENTS,
        st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1), timezones=st.timezones()),
        st.builds(Instant, st.integers(-(10**9), 10**9), st.integers(0, 999_999_999)),
    ),
    types.DayTimeIntervalType(): st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999)),
    types.YearMonthIntervalType(): st.integers(-999, 999),
    nested.ArrayType(types.DecimalType(4, 1)): st.lists(st.none() | st.decimals(-99, 99, places=1), max_size=3),
    nested.MapType(types.VarCharType(9), types.TimestampType(3)): st.dictionaries(st.text(), st.none() | MOMENTS),
    nested.MultisetType(types.IntType()): st.dictionaries(st.integers(0, 9), st.integers(1, 3)),
    nested.RowType.of(["x", "y"], [types.IntType(), types.TimestampType(3)]): st.tuples(st.integers(0, 9), MOMENTS),
    nested.RawType(): st.lists(st.integers() | st.text(), max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableRowType, list[tuple[Any, ...]]]:
    columns = draw(st.lists(st.sampled_from(sorted(VALUES, key=str)), min_size=1, max_size=5))
    is_nullable = draw(st.lists(st.booleans(), min_size=len(columns), max_size=len(columns)))
    cells = [
        st.none() | VALUES[column] if nullable else VALUES[column]
        for column, nullable in zip(columns, is_nullable, strict=True)
    ]
    declared = [column.with_nullability(nullable) for column, nullable in zip(columns, is_nullable, strict=True)]
    row_type = nested.RowType.of([f"c{n}" for n in range(len(columns))], declared)
    return TableRowType(row_type), draw(st.lists(st.tuples(*cells), max_size=4))


@given(tables())
def test_columns_agree_with_conform_and_have_the_row_type(
    table: tuple[TableRowType, list[tuple[Any, ...]]],
) -> None:
    type_info, rows = table
    batch = to_record_batch(list(rows), type_info)
    assert batch.schema.equals(type_info.row_type.schema, check_metadata=True)
    expected = [conform(row, type_info) for row in rows]
    assert from_record_batch(batch, type_info, unpickled) == expected
    assert Batch.of_values(list(rows), type_info).values() == expected


def one(data_type: DataType) -> TableRowType:
    return TableRowType(nested.RowType.of(["c"], [data_type]))


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (types.DecimalType(5, 2), Decimal("1.005"), Decimal("1.01")),
        (types.DecimalType(5, 2), Decimal("-1.005"), Decimal("-1.01")),
        (types.DecimalType(5, 2), 7, Decimal("7.00")),
        (types.TimestampType(3), dt.datetime(2024, 1, 1, 0, 0, 0, 1_999), dt.datetime(2024, 1, 1, 0, 0, 0, 1_000)),
        (
            types.TimestampType(3),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
        ),
        (types.LocalZonedTimestampType(3), Instant(1, 2_000_000), dt.datetime(1970, 1, 1, 0, 0, 1, 2_000, dt.UTC)),
        (types.TimeType(), dt.time(1, 2, 3, 4_567), dt.time(1, 2, 3, 4_000)),
    ],
)
def test_what_is_finer_than_a_type_is_handled_as_flink_does(data_type: DataType, value: Any, expected: Any) -> None:
    [row] = Batch.of_values([(value,)], one(data_type)).values()
    assert row.c == expected


@pytest.mark.parametrize(
    ("data_type", "value", "said"),
    [
        (types.BigIntType(False), None, "expected a value, as it is NOT NULL"),
        (types.DecimalType(5, 2), Decimal("1000"), "at most 3 digits before the point"),
        (types.DecimalType(5, 2), Decimal("999.995"), "at most 3 digits before the point"),
        (types.DecimalType(5, 2), 1.5, "expected a decimal.Decimal"),
        (types.DecimalType(5, 2), Decimal("NaN"), "expected a decimal.Decimal"),
        (types.TinyIntType(), 128, "expected a whole number from -128 to 127"),
        (types.TimestampType(3), "2024-01-01", "expected a datetime.datetime"),
        (types.TimestampType(3), Instant(0, 0), "use TIMESTAMP_LTZ"),
        (types.TimestampType(9), dt.datetime(1, 1, 1), "from 1677-09-21 00:12:43.145224192 to 2262-04-11"),
        (types.TimeType(), dt.time(1, tzinfo=dt.UTC), "without a zone"),
        (types.DayTimeIntervalType(), 5, "expected a datetime.timedelta"),
        (types.NullType(), 5, "expected None"),
        (nested.ArrayType(types.IntType()), [1, "a"], r"c\.\[1\] is 'a'|\[1\]"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_column(data_type: DataType, value: Any, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        Batch.of_values([(value,)], one(data_type))


def test_a_record_that_is_none_is_no_row_of_a_table() -> None:
    with pytest.raises(TypeMismatchError, match="a table has no record that is None"):
        Batch.of_values([None], one(types.IntType()))


def test_row_kinds_are_stored_after_the_columns() -> None:
    row = Row(c=1)
    row.set_row_kind(RowKind.DELETE)
    batch = Batch.of_values([row, Row(c=2)], one(types.IntType()))
    assert batch.columns().schema.names == ["c", "__kind"]
    assert [each.get_row_kind() for each in batch.values()] == [RowKind.DELETE, RowKind.INSERT]


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ProgramError, match="a"):
        TableRowType(nested.RowType.of(["a", "a"], [types.IntType(), types.IntType()]))


KEYS = [each for each in VALUES if not isinstance(each, nested.MapType | nested.MultisetType | nested.RawType)]


@given(st.data())
def test_a_key_of_a_tables_column_is_the_column_itself(data: st.DataObject) -> None:
    data_type = data.draw(st.sampled_from(KEYS))
    type_info = TableValueType(data_type)
    values = [conform(value, type_info) for value in data.draw(st.lists(VALUES[data_type], max_size=3))]
    assert is_stored_as_is(type_info)
    keys = key_column(values, type_info)
    schema = stream_schema(type_info)
    assert schema is not None
    assert keys.array.type == data_type.arrow
    assert keys.hashes.tolist() == key_column_of_arrow(to_record_batch(values, type_info).column(0)).hashes.tolist()


def test_a_type_is_the_same_when_it_is_made_again() -> None:
    row_type = nested.RowType.of(["a"], [types.DecimalType(5, 2, False)])
    assert TableRowType(row_type) == TableRowType(row_type)
    assert hash(TableRowType(row_type)) == hash(TableRowType(row_type))
    assert TableRowType(row_type) != one(types.DecimalType(5, 2, False))
    assert f"{TableRowType(row_type)}" == "Table<a DECIMAL(5, 2) NOT NULL>"
    assert stream_schema(TableRowType(row_type)) == pa.schema([pa.field("a", pa.decimal128(5, 2))])

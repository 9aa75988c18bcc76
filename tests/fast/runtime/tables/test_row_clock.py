"""The watermark of a batch is computed from its latest row alone where that suffices, with the same result."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.types import RowKind
from millstream.expressions.data_type import DataType
from millstream.expressions.data_types import DataTypes
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.graph.table_nodes import ColumnWatermarks, TableSession
from millstream.graph.time_columns import time_column
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.operators.user_code import UserCall, UserFailureError
from millstream.runtime.tables.row_clock import RowClock

TIME = DataTypes.TIMESTAMP(3)
SECONDS = DataTypes.INTERVAL(DataTypes.SECOND(3))
MOMENT = Column(TIME, 1)


def _minus_interval(function: str, interval: RowExpression) -> Call:
    return Call(TIME, function, (MOMENT, interval))


def _fixed(seconds: int) -> Literal:
    return Literal(SECONDS, dt.timedelta(seconds=seconds))


def _clock(watermark: RowExpression, time: DataType = TIME) -> RowClock:
    types = (DataTypes.BIGINT(), time)
    strategy = ColumnWatermarks(Column(time, 1), watermark, types, TableSession(), "at")
    return RowClock(strategy, UserCall("scan", "scan", "here"))


def _batch(moments: list[dt.datetime | None], time: DataType = TIME) -> Batch:
    columns = [pa.array(range(len(moments)), pa.int64()), pa.array(moments, time.arrow)]
    type_ = TableRowType(RowType.of(["n", "at"], [DataTypes.BIGINT(), time]))
    return Batch.of_columns(pa.RecordBatch.from_arrays(columns, names=["n", "at"]), type_)


WATERMARKS = st.one_of(
    st.just(MOMENT),
    st.builds(_minus_interval, st.sampled_from(["+", "-"]), st.integers(-100_000, 100_000).map(_fixed)),
    st.just(_minus_interval("-", Literal(SECONDS, None))),
)
MOMENTS = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29)).map(lambda at: at.replace(microsecond=0))


@given(WATERMARKS, st.lists(st.lists(MOMENTS, max_size=20), min_size=1, max_size=3))
def test_the_latest_row_determines_the_watermark(watermark: RowExpression, batches: list[list[dt.datetime]]) -> None:
    clock, reference = _clock(watermark), _clock(watermark)
    assert clock._time_column == 1
    reference._time_column = None  # the reference: every row is evaluated
    for moments in batches:  # the result of the first batch is used for the next
        times, mark = clock.times(_batch(list(moments)), 0)
        expected_times, expected_mark = reference.times(_batch(list(moments)), 0)
        assert (times.tolist(), mark) == (expected_times.tolist(), expected_mark)


@given(st.lists(st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(1980, 1, 1)), min_size=1, max_size=9))
def test_times_finer_than_a_millisecond_are_truncated_in_both_paths(moments: list[dt.datetime]) -> None:
    time = DataTypes.TIMESTAMP(6)
    clock, reference = (_clock(Call(time, "-", (Column(time, 1), _fixed(4))), time) for _ in range(2))
    reference._time_column = None
    for _ in range(2):
        times, mark = clock.times(_batch(list(moments), time), 0)
        expected_times, expected_mark = reference.times(_batch(list(moments), time), 0)
        assert (times.tolist(), mark) == (expected_times.tolist(), expected_mark)


@pytest.mark.parametrize(
    "watermark",
    [
        _minus_interval("-", Literal(DataTypes.INTERVAL(DataTypes.MONTH()), 1)),  # both last days of March become one
        _minus_interval("-", Column(SECONDS, 0)),
        Call(TIME, "-", (Column(TIME, 0), _fixed(4))),
    ],
)
def test_all_rows_are_evaluated_if_an_earlier_one_may_have_a_later_watermark(watermark: RowExpression) -> None:
    assert time_column(MOMENT, watermark) is None


def test_a_row_without_a_time_is_rejected_and_named() -> None:
    with pytest.raises(UserFailureError) as failure:
        _clock(_minus_interval("-", _fixed(4))).times(_batch([dt.datetime(2024, 1, 1), None]), 0)
    assert "should not be null" in str(failure.value)


def test_a_delete_with_only_a_key_has_no_time_and_no_watermark() -> None:
    first, latest = dt.datetime(2024, 1, 1, 0, 0, 5), dt.datetime(2024, 1, 1, 0, 0, 9)
    plain = _batch([first, None, latest])
    kinds = pa.array([RowKind.INSERT.value, RowKind.DELETE.value, RowKind.DELETE.value], pa.int8())
    assert plain.type_info is not None
    batch = Batch.of_columns(plain.columns().append_column(KIND_COLUMN, kinds), plain.type_info)
    times, mark = _clock(_minus_interval("-", _fixed(4))).times(batch, 0)
    since = int(dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp() * 1_000)
    assert (times.tolist(), mark) == ([since + 5_000, MIN_WATERMARK, since + 9_000], since + 5_000)

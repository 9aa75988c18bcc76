"""Timestamps from a field: read as a column or record by record, they are the same; values that are not times are
rejected.
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Row, WatermarkStrategy
from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.runtime.operators.user_code import UserCall, UserFailureError
from millstream.runtime.task.event_time import Timekeeper
from millstream.state.stored.times import EventTimeState

TIMES = st.integers(-(2**40), 2**40)
MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))
LONGS = Types.TUPLE([Types.STRING(), Types.LONG()])
INTS = Types.TUPLE([Types.STRING(), Types.INT()])
DATES = Types.ROW_NAMED(["what", "at"], [Types.STRING(), Types.SQL_TIMESTAMP()])


def timestamps_of(values: list[Any], type_info: TypeInformation | None, field: int | str) -> list[int]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(field)
    keeper = Timekeeper(strategy, EventTimeState(), UserCall("source", "uid", "job.py:1"))
    stamps = keeper.stamp(Batch.of_values(values, type_info)).timestamps
    assert stamps is not None
    return stamps.tolist()


@settings(deadline=None)
@given(st.lists(st.tuples(st.just("a"), TIMES)))
def test_a_typed_or_untyped_field_of_milliseconds_is_the_timestamp(values: list[Any]) -> None:
    expected = [time for _, time in values]
    assert (
        timestamps_of(values, LONGS, 1)
        == timestamps_of(values, None, 1)
        == timestamps_of(values, LONGS, "f1")
        == expected
    )


@settings(deadline=None)
@given(st.lists(MOMENTS))
def test_a_field_of_datetimes_is_the_timestamp_in_utc_rounded_down(moments: list[datetime.datetime]) -> None:
    rows = [Row(what="a", at=moment.replace(fold=0)) for moment in moments]
    assert timestamps_of(rows, DATES, "at") == timestamps_of(rows, DATES, 1) == timestamps_of(rows, None, "at")


def test_narrow_integers_are_timestamps() -> None:
    assert timestamps_of([("a", 7), ("b", -1)], INTS, 1) == [7, -1]


@pytest.mark.parametrize(
    ("values", "type_info", "field", "message"),
    [
        ([("a", None)], LONGS, 1, "returned None"),
        ([("a", 1)], LONGS, 0, "returned 'a'"),
        ([("a", 1)], LONGS, 2, "no such field"),
        ([("a", 1)], LONGS, "at", "no such field"),
        ([5], Types.LONG(), 0, "no such field"),
        ([None, ("a", 1)], LONGS, 1, "no such field"),
        ([("a", 1.5)], None, 1, "returned 1.5"),
    ],
)
def test_an_invalid_timestamp_is_rejected_with_its_record(
    values: Any, type_info: Any, field: Any, message: str
) -> None:
    with pytest.raises(UserFailureError) as caught:
        timestamps_of(values, type_info, field)
    assert message in caught.value.report.message and caught.value.report.record is not None


def test_a_bool_is_not_a_field_name() -> None:
    with pytest.raises(ProgramError, match="name of a field"):
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(True)

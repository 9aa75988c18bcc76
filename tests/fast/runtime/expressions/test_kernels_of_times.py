"""Kernels of time functions agree, over columns, with their references for each value."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Call, Column
from millstream.expressions.types import (
    BigIntType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    IntType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.runtime.expressions.kernel import (
    KERNELS,
    REFERENCES,
    CallContext,
    EvaluationError,
    SessionFacts,
    load_kernels,
    load_references,
)

load_kernels()
load_references()
STRING = VarCharType(0x7FFFFFFF)
STAMP, MOMENT, DATE, TIME = TimestampType(3), LocalZonedTimestampType(3), DateType(), TimeType(3)
MONTHS, SPAN = YearMonthIntervalType(), DayTimeIntervalType()
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe")
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")

# Python's calendar ends with 9999 and begins with 1: results must stay within it.
_clocks = st.datetimes(dt.datetime(102, 1, 1), dt.datetime(9000, 1, 1)) | st.datetimes(
    dt.datetime(1960, 1, 1), dt.datetime(2040, 1, 1)
)
# Last days of months, which do not exist in all months, are drawn on purpose.
_month_ends = st.builds(
    lambda year, month, second: dt.datetime(year, month, 1) - dt.timedelta(seconds=second),
    st.integers(1896, 2104),
    st.integers(1, 12),
    st.integers(1, 200_000),
)
clocks = (_clocks | _month_ends).map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000))
values_of: dict[DataType, st.SearchStrategy[Any]] = {
    STAMP: clocks,
    MOMENT: clocks.map(lambda value: value.replace(tzinfo=dt.UTC)),
    DATE: clocks.map(dt.datetime.date),
    TIME: clocks.map(dt.datetime.time),
    MONTHS: st.integers(-1200, 1200),
    SPAN: st.integers(-(10**10), 10**10).map(lambda ms: dt.timedelta(milliseconds=ms)),
}


def check_kernel(
    function: str,
    types: tuple[DataType, ...],
    result: DataType,
    columns: list[list[Any]],
    zone: str = "UTC",
    unit: str | None = None,
) -> None:
    """The kernel over columns, and over the first value as a scalar, agrees with the reference row by row."""
    arguments = tuple(Column(type_, place) for place, type_ in enumerate(types))
    call = Call(result, function.removeprefix("TEMPORAL "), arguments, (("unit", unit),) if unit else ())
    session = SessionFacts(zone=zone, now_us=1_790_000_000_123_456)
    rows = len(columns[0])
    expected = [REFERENCES[function](CallContext(call, 1, session), *row) for row in zip(*columns, strict=True)]
    arrays = [pa.array(column, type_.arrow) for column, type_ in zip(columns, types, strict=True)]
    actual = KERNELS[function](CallContext(call, rows, session), *arrays)
    assert actual.type == result.arrow
    assert actual.to_pylist() == expected
    scalars = [array[0] for array in arrays]
    single = KERNELS[function](CallContext(call, 1, session), *scalars)
    assert (single.to_pylist() if isinstance(single, pa.Array) else [single.as_py()]) == expected[:1]


def column(type_: DataType, rows: int = 6) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values_of[type_], min_size=rows, max_size=rows)


@settings(max_examples=15)
@given(st.data(), st.sampled_from((STAMP, MOMENT, DATE)), st.sampled_from(ZONES))
def test_parts_of_times(data: st.DataObject, type_: DataType, zone: str) -> None:
    values = data.draw(column(type_))
    day_units = ("DOY", "DOW", "ISODOW", "ISOYEAR", "DECADE", "CENTURY", "MILLENNIUM", "EPOCH", "MILLISECOND")
    for unit in (*UNITS, *day_units):
        check_kernel("EXTRACT", (type_,), BigIntType(), [values], zone, unit)


@given(column(TIME), column(SPAN), column(MONTHS))
def test_parts_of_times_of_day_and_of_intervals(times: list[Any], spans: list[Any], months: list[Any]) -> None:
    for unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND"):
        check_kernel("EXTRACT", (TIME,), BigIntType(), [times], unit=unit)
        check_kernel("EXTRACT", (SPAN,), BigIntType(), [spans], unit=unit)
    for unit in ("YEAR", "MONTH"):
        check_kernel("EXTRACT", (MONTHS,), BigIntType(), [months], unit=unit)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.data(), st.sampled_from((STAMP, MOMENT, DATE)), st.sampled_from(ZONES[:4]))
def test_rounding_to_a_unit(data: st.DataObject, type_: DataType, zone: str) -> None:
    values = data.draw(column(type_))
    for unit in ("CENTURY", "DECADE", *UNITS, "MILLISECOND"):
        for function in ("TEMPORAL FLOOR", "TEMPORAL CEIL"):
            check_kernel(function, (type_,), type_, [values], zone, unit)


@given(st.data(), st.sampled_from((STAMP, MOMENT, DATE, TIME)), st.sampled_from((MONTHS, SPAN)))
def test_times_moved_by_intervals(data: st.DataObject, type_: DataType, interval: DataType) -> None:
    values, amounts = data.draw(column(type_)), data.draw(column(interval))
    check_kernel("TEMPORAL +", (type_, interval), type_, [values, amounts])
    check_kernel("TEMPORAL -", (type_, interval), type_, [values, amounts])
    check_kernel("TEMPORAL +", (interval, type_), type_, [amounts, values])


@given(st.data(), st.sampled_from((MONTHS, SPAN)))
def test_intervals_added_multiplied_and_negated(data: st.DataObject, type_: DataType) -> None:
    first, second = data.draw(column(type_)), data.draw(column(type_))
    counts = data.draw(st.lists(st.none() | st.integers(-99, 99), min_size=6, max_size=6))
    check_kernel("TEMPORAL +", (type_, type_), type_, [first, second])
    check_kernel("TEMPORAL -", (type_, type_), type_, [first, second])
    check_kernel("TEMPORAL *", (type_, BigIntType()), type_, [first, counts])
    check_kernel("TEMPORAL NEGATE", (type_,), type_, [first])


@given(st.data(), st.sampled_from((STAMP, MOMENT, DATE)), st.sampled_from(UNITS))
def test_units_added_and_counted(data: st.DataObject, type_: DataType, unit: str) -> None:
    near = st.lists(st.none() | values_of[type_], min_size=4, max_size=4)
    first, second = data.draw(near), data.draw(near)
    counts = data.draw(st.lists(st.none() | st.integers(-99, 99), min_size=4, max_size=4))
    is_clock_unit = type_ is DATE and unit in ("HOUR", "MINUTE", "SECOND")
    check_kernel(
        "TIMESTAMPADD", (BigIntType(), type_), TimestampType(6) if is_clock_unit else type_, [counts, first], unit=unit
    )
    if unit not in ("SECOND", "MINUTE"):  # their counts are beyond INT for years that far apart
        check_kernel("TIMESTAMPDIFF", (type_, type_), IntType(), [first, second], unit=unit)


@given(*(column(type_, 4) for type_ in (STAMP, SPAN, STAMP, STAMP)))
def test_overlapping_periods(begin: list[Any], span: list[Any], other: list[Any], end: list[Any]) -> None:
    check_kernel("OVERLAPS", (STAMP, SPAN, STAMP, STAMP), BooleanType(), [begin, span, other, end])


PATTERNS = (
    "yyyy-MM-dd", "HH:mm", "yyyy-MM-dd HH:mm:ss.SSS", "EEE, d MMM yyyy", "h:mm a", "D w W", "QQQ ''uu''", "SSSSSS",
    "yyyyMMddHHmmss", "G yy MMMM EEEE k K",
)  # fmt: skip


@pytest.mark.slow
@given(st.data(), st.sampled_from((STAMP, MOMENT)), st.sampled_from(PATTERNS), st.sampled_from(ZONES))
def test_times_formatted_by_a_pattern(data: st.DataObject, type_: DataType, pattern: str, zone: str) -> None:
    values = data.draw(st.lists(st.none() | values_of[type_], min_size=1, max_size=30))
    check_kernel("DATE_FORMAT", (type_, STRING), STRING, [values, [pattern] * len(values)], zone)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.integers(-(10**11), 10**11) | st.none(), min_size=1, max_size=20), st.sampled_from(ZONES[:4]))
def test_unix_seconds_formatted_and_parsed_again(values: list[int | None], zone: str) -> None:
    check_kernel("FROM_UNIXTIME", (BigIntType(),), STRING, [values], zone)
    patterns = ["yyyy/MM/dd HH:mm", "EEE d. MMM yyyy", "D 'of' y", "yyyy-MM-dd"]
    check_kernel("FROM_UNIXTIME", (BigIntType(), STRING), STRING, [values, (patterns * 5)[: len(values)]], zone)


_texts = st.one_of(
    clocks.map(lambda value: value.strftime("%Y-%m-%d %H:%M:%S")),
    clocks.map(lambda value: value.isoformat(" ", "milliseconds")),
    clocks.map(lambda value: value.strftime("%Y-%m-%d")),
    st.sampled_from(["", "x", "2020-2-30", "2020-02-29 24:00:00", " 2020-01-01", "2020-13-01 00:00:00", "2020"]),
)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.none() | _texts, min_size=1, max_size=12), st.sampled_from(ZONES[:4]))
def test_text_parsed_as_times(texts: list[str | None], zone: str) -> None:
    rows = len(texts)
    check_kernel("TO_DATE", (STRING,), DATE, [texts])
    check_kernel("TO_TIMESTAMP", (STRING,), STAMP, [texts])
    check_kernel("UNIX_TIMESTAMP", (STRING,), BigIntType(), [texts], zone)
    for pattern in ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd[ HH:mm:ss]", "yyyy-MM-dd HH:mm:ss.SSS"):
        check_kernel("TO_TIMESTAMP", (STRING, STRING), STAMP, [texts, [pattern] * rows])
        if "[" not in pattern:
            check_kernel("TO_DATE", (STRING, STRING), DATE, [texts, [pattern] * rows])
    zones = (list(ZONES) * 2)[:rows]
    check_kernel("CONVERT_TZ", (STRING, STRING, STRING), STRING, [texts, zones, zones[::-1]])


@given(st.lists(st.none() | st.integers(-(10**13), 10**13), min_size=1, max_size=10), st.integers(0, 6))
def test_numbers_converted_to_timestamps(values: list[int | None], digits: int) -> None:
    type_ = LocalZonedTimestampType(max(3, digits))
    check_kernel("TO_TIMESTAMP_LTZ", (BigIntType(), IntType()), type_, [values, [digits] * len(values)])


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("function", "type_"),
    [("CURRENT_DATE", DATE), ("CURRENT_TIME", TimeType(0)), ("CURRENT_TIMESTAMP", MOMENT), ("LOCALTIMESTAMP", STAMP)],
)
def test_now_is_the_epochs_time_in_the_session_time_zone(zone: str, function: str, type_: DataType) -> None:
    session = SessionFacts(zone=zone, now_us=1_790_000_000_123_456)
    context = CallContext(Call(type_, function), 2, session)
    assert KERNELS[function](context).to_pylist() == [REFERENCES[function](context)] * 2


def test_uuids_have_version_4_and_are_unique() -> None:
    context = CallContext(Call(CharType(36), "UUID"), 500, SessionFacts())
    made = [text for _ in range(3) for text in KERNELS["UUID"](context).to_pylist()]
    assert len(set(made)) == 1500
    assert all(str(uuid.UUID(text)) == text and uuid.UUID(text).version == 4 for text in made)


_plain_clocks = st.datetimes(dt.datetime(1500, 1, 1), dt.datetime(2400, 1, 1))
_shapes = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%Y%m%d%H%M%S", "%Y-%m-%d %H:%M:%S.%f", "%d.%m.%Y")


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data(), st.sampled_from(_shapes), st.sampled_from(ZONES[:4]))
def test_bulk_parsing_agrees_with_parsing_one_by_one(data: st.DataObject, shape: str, zone: str) -> None:
    """This number of rows takes the path without a Python call per text; some texts in between are not dates."""
    plain = _plain_clocks.map(lambda value: value.strftime(shape))
    odd = st.none() | st.sampled_from(
        ["", "x", "2020-02-30", "2020-02-30 00:00:00", "2020-00-01", "20200229", "２０２０"]
    )
    texts = data.draw(st.lists(plain | plain | plain | odd, min_size=20, max_size=40))
    pattern = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss", "%f": "SSSSSS"}
    java = shape
    for word, letters in pattern.items():
        java = java.replace(word, letters)
    array, scalar = pa.array(texts, pa.string()), pa.scalar(java)
    session = SessionFacts(zone=zone, now_us=1_790_000_000_123_456)
    for function, result in (("TO_TIMESTAMP", STAMP), ("TO_DATE", DATE), ("UNIX_TIMESTAMP", BigIntType())):
        for arguments in ((array,), (array, scalar)):
            types = tuple(Column(STRING, place) for place in range(len(arguments)))
            call = Call(result, function, types)
            actual = KERNELS[function](CallContext(call, len(texts), session), *arguments).to_pylist()
            one = CallContext(call, 1, session)
            by = () if len(arguments) == 1 else (java,)
            assert actual == [REFERENCES[function](one, text, *by) for text in texts]


@pytest.mark.parametrize("function", ["TO_TIMESTAMP", "TO_DATE", "UNIX_TIMESTAMP"])
@pytest.mark.parametrize("rows", [2, 40])
def test_an_invalid_pattern_fails_at_the_first_row_with_a_text(function: str, rows: int) -> None:
    types = {"TO_TIMESTAMP": STAMP, "TO_DATE": DATE, "UNIX_TIMESTAMP": BigIntType()}
    call = Call(types[function], function, (Column(STRING, 0), Column(STRING, 1)))
    context, pattern, nulls = CallContext(call, rows, SessionFacts()), pa.scalar("'open"), [None] * (rows - 1)
    assert KERNELS[function](context, pa.nulls(rows, pa.string()), pattern).null_count == rows
    with pytest.raises(EvaluationError) as problem:
        KERNELS[function](context, pa.array([*nulls, "2020"]), pattern)
    assert problem.value.row == rows - 1


def test_times_out_of_range_are_rejected_at_their_row() -> None:
    type_ = TimestampType(9)
    call = Call(type_, "+", (Column(type_, 0), Column(SPAN, 1)))
    values = pa.array([0, 2**63 - 1], pa.int64()).cast(pa.timestamp("ns"))
    with pytest.raises(EvaluationError, match="beyond TIMESTAMP") as problem:
        KERNELS["TEMPORAL +"](CallContext(call, 2, SessionFacts()), values, pa.scalar(1, pa.duration("ms")))
    assert problem.value.row == 1


@pytest.mark.parametrize(
    ("day", "months", "expected"),
    [
        ("2020-01-31", 1, "2020-02-29"),
        ("2021-01-31", 1, "2021-02-28"),
        ("2020-02-29", 12, "2021-02-28"),
        ("2020-03-31", -1, "2020-02-29"),
        ("1900-01-30", 1, "1900-02-28"),
        ("1969-12-31", -10, "1969-02-28"),
    ],
)
def test_adding_months_clips_to_the_last_day_of_the_month(day: str, months: int, expected: str) -> None:
    call = Call(DATE, "+", (Column(DATE, 0), Column(MONTHS, 1)))
    values = pa.array([dt.date.fromisoformat(day)] * 2)
    for amount in (pa.scalar(months, pa.int32()), pa.array([months, months], pa.int32())):
        actual = KERNELS["TEMPORAL +"](CallContext(call, 2, SessionFacts()), values, amount)
        assert actual.to_pylist() == [dt.date.fromisoformat(expected)] * 2


@pytest.mark.parametrize(
    ("type_", "ticks", "texts"),
    [
        (
            DATE,
            [2_932_897, 0, None, -719_163, -719_529],
            ["+10000-01-01", "1970-01-01", None, "0000-12-31", "-0001-12-31"],
        ),
        (
            TimestampType(3),
            [253_402_300_800_001, -1, None, -62_167_219_200_001],
            ["+10000-01-01 00:00:00.001", "1969-12-31 23:59:59.999", None, "-0001-12-31 23:59:59.999"],
        ),
        (TimestampType(0), [253_402_300_799, 253_402_300_800], ["9999-12-31 23:59:59", "+10000-01-01 00:00:00"]),
    ],
)
def test_times_of_any_year_are_formatted(type_: DataType, ticks: list[int | None], texts: list[str | None]) -> None:
    values = pa.array(ticks, pa.int32() if type_ is DATE else pa.int64()).view(type_.arrow)
    for function in ("CAST", "TRY_CAST"):
        call = Call(VarCharType(0x7FFFFFFF), function, (Column(type_, 0),))
        assert KERNELS[function](CallContext(call, len(values), SessionFacts()), values).to_pylist() == texts

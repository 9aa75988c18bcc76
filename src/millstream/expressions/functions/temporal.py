"""Dates, times, intervals, zones, and Java's date patterns.

`arithmetic` defines the operators + - * of times and intervals with the numeric ones, and FLOOR and CEIL, which round
times to a unit (FLOOR(t TO HOUR)). The unit is the option `unit` of a call.
"""

from __future__ import annotations

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import NOT_CONSTANT, Arguments, Bind, Binding
from millstream.expressions.functions.signatures import (
    INTERVAL,
    NUMBER,
    STAMP,
    STRING,
    TEXT,
    TIME_POINT,
    WHOLE,
    Parameter,
    castable_to,
    either,
    optional,
    refusal,
    scalar,
    signature,
)
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import (
    BigIntType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
    is_text,
)

__all__: list[str] = []

FAMILY = "temporal"
_BIGINT = BigIntType()
_CLOCK_UNITS = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND")
_MILLI_UNITS = _CLOCK_UNITS[:4]
_POINT_OR_INTERVAL = either("a date, time, timestamp or interval", TIME_POINT, INTERVAL)
_STAMP_OR_TEXT = either("a timestamp or text", STAMP, TEXT)
_COUNT = castable_to("an integer", _BIGINT)


# --- parts --------------------------------------------------------------------------------------------------------


def _extract(syntax: str, unit: str | None) -> Bind:
    """The rule of EXTRACT, or of a function that abbreviates it for one unit."""
    name = syntax.split("(", 1)[0]
    plain = signature(name, syntax, (_POINT_OR_INTERVAL,), _BIGINT)

    def bind(arguments: Arguments) -> Binding:
        binding = plain(arguments)
        requested = unit or dict(arguments.options).get("unit")
        type_ = binding.arguments[0]
        if not _has_unit(type_, str(requested)):
            raise refusal(name, syntax, f"a type that has the unit {requested}", [type_])
        return binding

    return bind


def _has_unit(type_: DataType, unit: str) -> bool:
    if isinstance(type_, TimeType):
        return unit in _MILLI_UNITS
    if isinstance(type_, YearMonthIntervalType):
        return unit in ("YEAR", "QUARTER", "MONTH", "CENTURY", "MILLENNIUM")
    if isinstance(type_, DayTimeIntervalType):
        return unit in (*_MILLI_UNITS, "DAY")
    return not isinstance(type_, DateType) or unit not in ("MICROSECOND", "NANOSECOND")


def _define_parts() -> None:
    extract = "EXTRACT(unit FROM time)"
    scalar(
        extract, (), _BIGINT, "A field of a time as a number: YEAR, QUARTER, MONTH, WEEK, DAY, DOY, DOW, HOUR, …",
        FAMILY, bind=_extract(extract, None), may_fail=False, method="extract",
    )  # fmt: skip
    rows = (
        ("YEAR", "YEAR", "The year of a date."),
        ("QUARTER", "QUARTER", "The quarter of a date, 1 to 4."),
        ("MONTH", "MONTH", "The month of a date, 1 to 12."),
        ("WEEK", "WEEK", "The week of a date by ISO 8601, 1 to 53."),
        ("DAYOFYEAR", "DOY", "The day of the year, 1 to 366."),
        ("DAYOFMONTH", "DAY", "The day of the month, 1 to 31."),
        ("DAYOFWEEK", "DOW", "The day of the week, 1 for Sunday to 7."),
        ("HOUR", "HOUR", "The hour of a time, 0 to 23."),
        ("MINUTE", "MINUTE", "The minute of a time, 0 to 59."),
        ("SECOND", "SECOND", "The second of a time, 0 to 59."),
    )
    for name, unit, doc in rows:
        syntax = f"{name}(time)"
        scalar(syntax, (), _BIGINT, doc, FAMILY, bind=_extract(syntax, unit), may_fail=False)


# --- arithmetic ---------------------------------------------------------------------------------------------------


def _moved_type(arguments: Arguments) -> DataType:
    """The argument's type with at least the fractional digits of the unit; a date plus hours is a timestamp."""
    type_ = arguments.types[1]
    unit = dict(arguments.options).get("unit")
    fewest = {"MILLISECOND": 3, "MICROSECOND": 6}.get(str(unit), 0)
    if isinstance(type_, TimestampType | LocalZonedTimestampType):
        return type(type_)(max(type_.precision, fewest), type_.is_nullable)
    if isinstance(type_, DateType | TimeType) and unit == "MICROSECOND":
        raise refusal("TIMESTAMPADD", "TIMESTAMPADD(unit, count, time)", "a timestamp with MICROSECOND", [type_])
    return TimestampType(6) if isinstance(type_, DateType) and unit in _CLOCK_UNITS else type_


def _bind_overlaps(arguments: Arguments) -> Binding:
    """The rule for two rows of two values, or four values: each pair is a time, and a time of the same type or an
    interval."""
    types = arguments.types
    if len(types) == 2 and all(isinstance(type_, RowType) for type_ in types):
        types = tuple(field.data_type for type_ in types for field in type_.fields)  # type: ignore[attr-defined]
    points = (DateType, TimeType, TimestampType, LocalZonedTimestampType)
    fits = len(types) == 4 and all(
        isinstance(begin, points)
        and (isinstance(end, YearMonthIntervalType | DayTimeIntervalType) or end.is_like(begin))
        for begin, end in (types[:2], types[2:])
    )
    if not fits or not types[0].is_like(types[2]):
        raise refusal("OVERLAPS", _OVERLAPS, "two pairs of times of one type, or of a time and an interval", types)
    return Binding(arguments.types, BooleanType(any(type_.is_nullable for type_ in types)))


def _bind_difference(arguments: Arguments) -> Binding:
    binding = signature("TIMESTAMPDIFF", _DIFFERENCE, (TIME_POINT, TIME_POINT), IntType())(arguments)
    kinds = [isinstance(type_, LocalZonedTimestampType) for type_ in binding.arguments]
    times = [isinstance(type_, TimeType) for type_ in binding.arguments]
    has_days = dict(arguments.options).get("unit") not in (*_CLOCK_UNITS, None)
    if any(kinds) != all(kinds) or any(times) != all(times) or (any(times) and has_days):
        raise refusal("TIMESTAMPDIFF", _DIFFERENCE, "two times of one kind", binding.arguments)
    return binding


def _bind_minus(arguments: Arguments) -> Binding:
    """The unit selects the kind of interval: months, or time in milliseconds; the unit itself is ignored."""
    first, second = arguments.types
    if isinstance(first, NullType) or isinstance(second, NullType):
        first = second = second if isinstance(first, NullType) else first
    points = (DateType, TimeType, TimestampType, LocalZonedTimestampType)
    units = str(dict(arguments.options)["unit"])
    has_months = units.startswith(("YEAR", "QUARTER", "MONTH"))
    if not isinstance(first, points) or type(first) is not type(second) or (has_months and isinstance(first, TimeType)):
        raise refusal("-", _MINUS, f"two times of one type that have the unit {units}", arguments.types)
    result = YearMonthIntervalType(_MONTHS_ONLY) if has_months else DayTimeIntervalType(_SECONDS_ONLY, 2, 3)
    nullable = any(type_.is_nullable or isinstance(type_, NullType) for type_ in arguments.types)
    return Binding((first, second), result.with_nullability(nullable))


_MINUS = "(time - time) DAY"
_MONTHS_ONLY = YearMonthIntervalType.YearMonthResolution.MONTH
_SECONDS_ONLY = DayTimeIntervalType.DayTimeResolution.SECOND
_DIFFERENCE = "TIMESTAMPDIFF(unit, start, stop)"
_OVERLAPS = "(start, end) OVERLAPS (start, end)"


def _define_arithmetic() -> None:
    scalar(
        "TIMESTAMPADD(unit, count, time)", (_COUNT, TIME_POINT), _moved_type,
        "A time moved by a number of units; months keep the day if the month has it.", FAMILY,
    )  # fmt: skip
    scalar(
        _DIFFERENCE, (), IntType(),
        "The number of whole units between two times; negative if the second is earlier.", FAMILY,
        bind=_bind_difference,
    )  # fmt: skip
    scalar(
        _MINUS, (), IntType(),
        "The interval between two times: whole months with YEAR or MONTH, else to the millisecond.",
        FAMILY, name="MINUS_DATE", bind=_bind_minus, may_fail=False,
    )  # fmt: skip
    scalar(
        _OVERLAPS, (), BooleanType(),
        "Whether two periods overlap; their ends are inclusive.", FAMILY,
        name="OVERLAPS", bind=_bind_overlaps, may_fail=False,
    )  # fmt: skip


# --- text ---------------------------------------------------------------------------------------------------------


def _moment_type(arguments: Arguments) -> DataType:
    """TIMESTAMP_LTZ with 3 fractional digits, or more if the constant precision or pattern has more."""
    second = arguments.constant(1) if len(arguments) > 1 else NOT_CONSTANT
    if second is NOT_CONSTANT or second is None:
        return LocalZonedTimestampType(3)
    if isinstance(second, int):
        if not 0 <= second <= 9:
            raise refusal("TO_TIMESTAMP_LTZ", _TO_LTZ, f"a precision of 0 to 9 (not {second})", arguments.types)
        return LocalZonedTimestampType(max(3, second))
    return LocalZonedTimestampType(min(9, max(3, str(second).count("S"))))


_TO_LTZ = "TO_TIMESTAMP_LTZ(number[, precision]) or TO_TIMESTAMP_LTZ(text[, pattern[, zone]])"


def _bind_moment(arguments: Arguments) -> Binding:
    types = arguments.types
    # NULL counts as a string if the arguments after it require one.
    is_null_text = len(types) > 1 and isinstance(types[0], NullType) and (is_text(types[1]) or len(types) > 2)
    if types and (is_text(types[0]) or is_null_text):
        parameters: tuple[Parameter, ...] = (TEXT, optional(TEXT), optional(TEXT))
    else:
        parameters = (NUMBER, optional(WHOLE))
    return signature("TO_TIMESTAMP_LTZ", _TO_LTZ, parameters, _moment_type, "always")(arguments)


def _define_text() -> None:
    pattern = optional(TEXT)
    rows: tuple[tuple[str, tuple[Parameter, ...], DataType, str, bool], ...] = (
        ("DATE_FORMAT(time, pattern)", (_STAMP_OR_TEXT, TEXT), STRING,
         "A timestamp formatted by a Java pattern (yyyy-MM-dd HH:mm:ss).", False),
        ("TO_DATE(text[, pattern])", (TEXT, pattern), DateType(),
         "A date parsed from text; NULL if it is malformed. Default pattern: yyyy-MM-dd.", True),
        ("TO_TIMESTAMP(text[, pattern])", (TEXT, pattern), TimestampType(3),
         "A timestamp parsed from text; NULL if it is malformed. Default pattern: yyyy-MM-dd HH:mm:ss.SSS.", True),
        ("FROM_UNIXTIME(seconds[, pattern])", (_COUNT, pattern), STRING,
         "Seconds since 1970, formatted in the session's zone.", False),
        ("CONVERT_TZ(text, zone, zone)", (TEXT, TEXT, TEXT), STRING,
         "Local time of the first zone, as text, converted to the second zone.", True),
    )  # fmt: skip
    for syntax, parameters, result, doc, is_expensive in rows:
        scalar(syntax, parameters, result, doc, FAMILY, nulls="always", is_expensive=is_expensive)
    moment = (
        "An instant, from a number since 1970 with a number of fractional digits (default 3), or from text as local "
        "time of a zone (default UTC)."
    )
    scalar(_TO_LTZ, (), LocalZonedTimestampType(3), moment, FAMILY, bind=_bind_moment, method="to_timestamp_ltz")
    seconds = "Seconds since 1970: now, or of text as local time in the session's zone."
    scalar("UNIX_TIMESTAMP([text[, pattern]])", (pattern, pattern), _BIGINT, seconds, FAMILY, deterministic=False)


# --- now ----------------------------------------------------------------------------------------------------------


def _define_now() -> None:
    moment = LocalZonedTimestampType(3)
    rows: tuple[tuple[str, DataType, str], ...] = (
        ("CURRENT_DATE", DateType(), "The date of the epoch's time, in the session's zone."),
        ("CURRENT_TIME", TimeType(0), "The time of day of the epoch's time, in the session's zone."),
        ("LOCALTIME", TimeType(0), "The time of day of the epoch's time, in the session's zone."),
        ("CURRENT_TIMESTAMP", moment, "The epoch's time, the same for all its rows."),
        ("NOW()", moment, "The epoch's time, the same for all its rows."),
        ("LOCALTIMESTAMP", TimestampType(3), "The epoch's time as local time in the session's zone."),
        ("CURRENT_ROW_TIMESTAMP()", moment, "The epoch's time, the same for all its rows."),
        ("PROCTIME()", moment, "The processing time of a row: the epoch's time."),
    )
    for syntax, type_, doc in rows:
        scalar(syntax, (), type_, doc, FAMILY, nulls="never", deterministic=False, may_fail=False)
    scalar(
        "CURRENT_WATERMARK(rowtime)", (STAMP,), lambda arguments: arguments.types[0],
        "The current watermark; NULL if there is none yet.", FAMILY, nulls="always", deterministic=False,
    )  # fmt: skip
    scalar(
        "SOURCE_WATERMARK()", (), moment, "Declares the source's watermark: WATERMARK FOR t AS SOURCE_WATERMARK().",
        FAMILY, nulls="always", deterministic=False,
    )  # fmt: skip


_define_parts()
_define_arithmetic()
_define_text()
_define_now()

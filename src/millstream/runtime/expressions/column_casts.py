"""Casts whole columns: vectorised casts for the common pairs of types, `value_casts` for the rest.

A vectorised cast may decline a column (None): strings not all of one plain form, decimals wider than 8 bytes. Then each
distinct value is cast individually, and the error names the first row that cannot be cast.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, RowType
from millstream.expressions.types import (
    BooleanType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)
from millstream.runtime.expressions.kernel import EvaluationError, SessionFacts
from millstream.runtime.expressions.number_casts import (
    decimal_to_decimal,
    decimal_to_float,
    decimal_to_integer,
    float_to_integer,
    integer_to_decimal,
    integer_to_integer,
)
from millstream.runtime.expressions.time_columns import (
    DAY_S,
    check_times,
    column,
    local_ticks,
    moment_ticks,
    rate_of,
    ticks,
)
from millstream.runtime.expressions.time_texts import parse_stamp
from millstream.runtime.expressions.value_casts import cast_value

__all__ = ["cast_column", "try_cast_column"]

ColumnCast = Callable[[pa.Array, DataType, DataType, SessionFacts], pa.Array | None]
_TIMES = (DateType, TimeType, TimestampType, LocalZonedTimestampType)
_PLAIN_INTEGER = r"^[+-]?\d{1,18}$"
_PLAIN_FLOAT = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_PLAIN_STAMP = r"^[1-9]\d{3}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?$"
_PLAIN_DAY = r"^[1-9]\d{3}-\d{2}-\d{2}$"


def cast_column(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array:
    """Casts a column as CAST does; raises `EvaluationError` for the first row that cannot be cast."""
    if kinds.is_null(values.type):
        return pa.nulls(len(values), to.arrow)
    if from_.is_like(to):
        return values
    column_cast = _column_cast(from_, to)
    if column_cast is not None:
        try:
            result = column_cast(values, from_, to, session)
        except (pa.ArrowInvalid, EvaluationError):
            # Casting value by value locates the row.
            result = None
        if result is not None:
            return result
    return _value_by_value(values, from_, to, session, is_strict=True)


def try_cast_column(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array:
    """Casts a column as TRY_CAST does: values that cannot be cast become NULL."""
    try:
        return cast_column(values, from_, to, session)
    except EvaluationError:
        return _value_by_value(values, from_, to, session, is_strict=False)


def _value_by_value(
    values: pa.Array, from_: DataType, to: DataType, session: SessionFacts, *, is_strict: bool
) -> pa.Array:
    """Casts each distinct value individually."""
    codes = None
    if not kinds.is_nested(values.type):
        encoded = values.dictionary_encode()
        values, codes = encoded.dictionary, encoded.indices
    results = []
    for position, value in enumerate(values.to_pylist()):
        try:
            results.append(cast_value(value, from_, to, session))
        except EvaluationError as problem:
            if is_strict:
                raise EvaluationError(str(problem), position if codes is None else _first(codes, position)) from None
            results.append(None)
    whole = pa.array(results, to.arrow)
    return whole if codes is None else whole.take(codes)


def _first(codes: pa.Array, code: int) -> int:
    """The first row with a code. Dictionaries are in row order, so the first failing code is that of the first failing
    row."""
    return int(pc.index(codes, pa.scalar(code, codes.type)).as_py())


def _column_cast(from_: DataType, to: DataType) -> ColumnCast | None:
    """The vectorised cast from one type to another, if there is one."""
    for sources, targets, column_cast in _COLUMN_CASTS:
        if isinstance(from_, sources) and isinstance(to, targets):
            return column_cast
    return None


def _by_arrow(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array:
    return pc.cast(values, to.arrow, safe=False)


def _to_sized_text(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Casts values that Arrow formats as Flink does, truncated to the length of the type."""
    assert isinstance(to, CharType | VarCharType)
    if isinstance(from_, BooleanType):
        values = pc.if_else(values, "TRUE", "FALSE")
    is_beyond = isinstance(from_, DateType) and not _is_within_four_digits(values)
    values = _extended_days(values) if is_beyond else values.cast(pa.string())
    if to.length < 0x7FFFFFFF:
        values = pc.utf8_slice_codeunits(values, 0, to.length)
    return pc.utf8_rpad(values, to.length) if isinstance(to, CharType) else values


def _is_within_four_digits(days: pa.Array) -> bool:
    ends = pc.min_max(days.view(pa.int32())).as_py()
    return ends["min"] is None or (ends["min"] >= -719_162 and ends["max"] <= 2_932_896)


def _extended_days(days: pa.Array) -> pa.Array:
    """Formats days; years beyond four digits have a sign, as in ISO 8601.

    >>> _extended_days(pa.array([2_932_897, 0, -719_529, None], pa.date32())).to_pylist()
    ['+10000-01-01', '1970-01-01', '-0001-12-31', None]
    """
    moments = days.fill_null(0).view(pa.int32()).to_numpy().astype("datetime64[D]")
    years = moments.astype("datetime64[Y]").astype(np.int64) + 1970
    signs = np.where(years > 9999, "+", np.where(years < 0, "-", ""))
    texts = [
        f"{sign}{abs(year):04d}{text[-6:]}"
        for sign, year, text in zip(signs, years, np.datetime_as_string(moments), strict=True)
    ]
    return pa.array(texts, mask=np.asarray(days.is_null()))


def _stamp_to_text(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Formats timestamps as local time in the session's zone, with the digits of their type."""
    assert isinstance(from_, TimestampType | LocalZonedTimestampType)
    source = ticks(values)
    wall = TimestampType(from_.precision)
    local = column(wall, local_ticks(from_, source.values, session), source.valid, len(values))
    days = local.cast(pa.timestamp("s"), safe=False).cast(pa.date32(), safe=False)
    digits = from_.precision + 1 if from_.precision else 0
    if _is_within_four_digits(days):
        text = pc.utf8_slice_codeunits(local.cast(pa.string()), 0, 19 + digits)
    else:
        begins = pc.floor_temporal(local, unit="day")
        of_day = pc.subtract(local, begins).view(pa.int64()).view(local.type)
        clock = pc.utf8_slice_codeunits(of_day.cast(pa.string()), 10, 19 + digits)
        text = pc.binary_join_element_wise(_extended_days(begins.cast(pa.date32())), clock, "")
    return _to_sized_text(text, VarCharType(1), to, session)


def _text_to_bytes(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    assert isinstance(to, VarBinaryType)
    return values.cast(pa.binary()) if to.length == 0x7FFFFFFF else None


def _all_match(values: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(values, pattern)).as_py() is not False


def _text_to_integer(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    trimmed = pc.utf8_trim_whitespace(values)
    if not _all_match(trimmed, _PLAIN_INTEGER):
        return None
    return pc.utf8_ltrim(trimmed, "+").cast(to.arrow)


def _text_to_double(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    trimmed = pc.utf8_trim_whitespace(values)
    if not _all_match(trimmed, _PLAIN_FLOAT):
        return None
    return pc.utf8_ltrim(trimmed, "+").cast(pa.float64())


def _text_to_stamp(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    assert isinstance(to, TimestampType | LocalZonedTimestampType)
    if _all_match(values, _PLAIN_STAMP):
        local = ticks(values.cast(pa.timestamp("us")))
        return _as_stamp(local.values, 1_000_000, local.valid, to, session)
    if to.precision <= 6:
        return None
    # Python's datetime does not support nanoseconds.
    rate = rate_of(to)
    numbers = [None if text is None else parse_stamp(text, to.precision, rate) for text in values.to_pylist()]
    local = ticks(pa.array(numbers, pa.int64()))
    return _as_stamp(local.values, rate, local.valid, to, session)


def _text_to_day(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    return values.cast(pa.date32()) if _all_match(values, _PLAIN_DAY) else None


def _as_stamp(local: np.ndarray, rate: int, valid: np.ndarray | None, to: DataType, session: SessionFacts) -> pa.Array:
    """Converts local time, in ticks of a rate, to a timestamp column."""
    precision: int = to.precision  # type: ignore[attr-defined]
    unit = max(1, rate // 10**precision)
    cut = local // unit * unit
    target = rate_of(to)
    if target >= rate:
        check_times(to, cut, target // rate)
        scaled = cut * (target // rate)
    else:
        scaled = cut // (rate // target)
    return column(to, moment_ticks(to, scaled, session), valid, len(local))


def _time_to_time(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array:
    """Casts between dates, times of day and timestamps through local time in the session's zone."""
    source = ticks(values)
    if isinstance(from_, LocalZonedTimestampType) and isinstance(to, LocalZonedTimestampType):
        plain_from, plain_to = TimestampType(from_.precision), TimestampType(to.precision)
        cut = _as_stamp(source.values, rate_of(plain_from), source.valid, plain_to, session)
        return cut.view(to.arrow)
    rate = 1_000 if isinstance(from_, TimeType) else rate_of(from_)
    local = source.values if isinstance(from_, TimeType) else local_ticks(from_, source.values, session)
    if isinstance(to, DateType):
        return column(to, local // (DAY_S * rate), source.valid, len(values))
    if isinstance(to, TimeType):
        of_day = local - local // (DAY_S * rate) * (DAY_S * rate)
        milliseconds = of_day * (1_000 // rate) if rate <= 1_000 else of_day // (rate // 1_000)
        unit = 10 ** max(0, 3 - to.precision)
        return column(to, milliseconds // unit * unit, source.valid, len(values))
    return _as_stamp(local, rate, source.valid, to, session)


def _row_to_row(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Casts rows field by field. A NULL row has NULL fields, so its cast cannot fail."""
    assert isinstance(from_, RowType) and isinstance(to, RowType)
    try:
        parts = [
            cast_column(part, source, target, session)
            for part, source, target in zip(values.flatten(), from_.types, to.types, strict=True)
        ]
    except EvaluationError:
        return None
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(to.arrow), mask=mask)


def _array_to_array(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Casts the elements of all rows as one column."""
    assert isinstance(from_, ArrayType) and isinstance(to, ArrayType)
    if values.offset or values.null_count:
        return None
    try:
        elements = cast_column(values.values, from_.element_type, to.element_type, session)
    except EvaluationError:
        return None
    return pa.ListArray.from_arrays(values.offsets, elements, type=to.arrow)


_TEXT = (CharType, VarCharType)
_FLOATS = (FloatType, DoubleType)
_COLUMN_CASTS: tuple[tuple[tuple[type, ...], tuple[type, ...], ColumnCast], ...] = (
    ((IntegralType,), (IntegralType,), integer_to_integer),
    ((IntegralType,), _FLOATS, _by_arrow),
    (_FLOATS, _FLOATS, _by_arrow),
    (_FLOATS, (IntegralType,), float_to_integer),
    ((IntegralType,), (DecimalType,), integer_to_decimal),
    ((DecimalType,), (DecimalType,), decimal_to_decimal),
    ((DecimalType,), (IntegralType,), decimal_to_integer),
    ((DecimalType,), _FLOATS, decimal_to_float),
    ((BooleanType,), (IntegralType, *_FLOATS), _by_arrow),
    ((IntegralType, *_FLOATS), (BooleanType,), _by_arrow),
    ((*_TEXT, IntegralType, BooleanType, DateType), _TEXT, _to_sized_text),
    ((TimestampType, LocalZonedTimestampType), _TEXT, _stamp_to_text),
    (_TEXT, (VarBinaryType,), _text_to_bytes),
    (_TEXT, (IntegralType,), _text_to_integer),
    (_TEXT, (DoubleType,), _text_to_double),
    (_TEXT, (TimestampType, LocalZonedTimestampType), _text_to_stamp),
    (_TEXT, (DateType,), _text_to_day),
    (_TIMES, _TIMES, _time_to_time),
    ((RowType,), (RowType,), _row_to_row),
    ((ArrayType,), (ArrayType,), _array_to_array),
)

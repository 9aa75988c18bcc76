"""Kernels of session functions (time, watermark, database) and of UUID.

CURRENT_TIMESTAMP and related functions return the time of the epoch (`SessionFacts.now_us`), the same for all its rows,
so an epoch that is run again emits the same rows. Flink's streaming mode uses the time of each record.

Values of UUID() are unique like random ones, but identical if an epoch is run again.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa

from millstream.expressions.types import DateType, LocalZonedTimestampType, TimestampType, TimeType
from millstream.records.watermarks import MIN_WATERMARK, REAL_WATERMARK_MAX
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, Value, kernel
from millstream.runtime.expressions.time_columns import check_times, column, rate_of, session_zone

__all__ = ["now_ticks"]

_DAY_MS = 86_400_000
# Positions of the first digit of each byte in 01234567-0123-0123-0123-0123456789ab.
_HIGH_PLACES = np.array([0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34])


@kernel(
    "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "CURRENT_ROW_TIMESTAMP",
    "PROCTIME",
)  # fmt: skip
def current_time(context: CallContext) -> Value:
    """The time of the epoch in the function's type."""
    return column(context.type, np.array([now_ticks(context)], np.int64), None, context.rows)


def now_ticks(context: CallContext) -> int:
    """The time of the epoch in ticks of the call's type."""
    type_ = context.type
    now_ms = context.session.now_us // 1_000
    if isinstance(type_, LocalZonedTimestampType):
        return now_ms * rate_of(type_) // 1_000
    offset = int(session_zone(context.session).offsets(np.array([now_ms // 1_000], np.int64))[0])
    local_ms = now_ms + offset * 1_000
    if isinstance(type_, DateType):
        return local_ms // _DAY_MS
    if isinstance(type_, TimeType):
        # Flink's TIME(0) has no fraction.
        return local_ms % _DAY_MS // 1_000 * 1_000
    assert isinstance(type_, TimestampType)
    return local_ms * rate_of(type_) // 1_000


@kernel("CURRENT_WATERMARK")
def current_watermark(context: CallContext, rowtime: Value) -> Value:
    """The watermark at the start of the epoch; NULL before the first and after the last watermark."""
    watermark_ms = context.session.watermark_ms
    if watermark_ms is None or not MIN_WATERMARK < watermark_ms <= REAL_WATERMARK_MAX:
        return pa.nulls(context.rows, context.type.arrow)
    rate, reached = rate_of(context.type), np.array([watermark_ms], np.int64)
    if rate <= 1_000:
        return column(context.type, reached // (1_000 // rate), None, context.rows)
    check_times(context.type, reached, rate // 1_000)
    return column(context.type, reached * (rate // 1_000), None, context.rows)


@kernel("SOURCE_WATERMARK")
def reject_source_watermark(context: CallContext) -> Value:
    """SOURCE_WATERMARK() is allowed only in a declaration: WATERMARK FOR t AS SOURCE_WATERMARK()."""
    raise EvaluationError("SOURCE_WATERMARK() has no value: use it only in WATERMARK FOR … AS")


@kernel("CURRENT_DATABASE")
def current_database(context: CallContext) -> Value:
    """The session's database."""
    return pa.repeat(pa.scalar(context.session.database, pa.string()), context.rows)


@kernel("UUID")
def uuids(context: CallContext) -> Value:
    """Version 4 UUIDs: 128 random bits, except for the version and variant bits, in hexadecimal digits."""
    draws = context.session.draws
    numbers = os.urandom(16 * context.rows) if draws is None else draws.generator(2).bytes(16 * context.rows)
    drawn = np.frombuffer(numbers, np.uint8).reshape(context.rows, 16).copy()
    drawn[:, 6] = drawn[:, 6] & 0x0F | 0x40
    drawn[:, 8] = drawn[:, 8] & 0x3F | 0x80
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((context.rows, 36), ord("-"), np.uint8)
    text[:, _HIGH_PLACES] = digits[drawn >> 4]
    text[:, _HIGH_PLACES + 1] = digits[drawn & 0x0F]
    offsets = np.arange(0, 36 * (context.rows + 1), 36, dtype=np.int32)
    return pa.StringArray.from_buffers(context.rows, pa.py_buffer(offsets), pa.py_buffer(text))

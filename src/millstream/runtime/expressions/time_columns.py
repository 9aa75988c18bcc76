"""Converts columns of times to integers and back, for all kernels of times.

A **tick** is the unit in which a column counts: days for DATE, milliseconds for TIME and intervals, the unit of its
precision for a timestamp. `ticks` returns the numbers of a column (a single number of a scalar, which numpy broadcasts)
with a mask of valid rows; `column` builds a column from numbers. Numbers under NULL are arbitrary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.data_type import DataType
from millstream.expressions.nanosecond_range import beyond_range
from millstream.expressions.types import DateType, LocalZonedTimestampType, TimestampType
from millstream.runtime.expressions.kernel import EvaluationError, SessionFacts, Value
from millstream.runtime.expressions.zones import Zone, zone_of

__all__ = [
    "Ticks",
    "both_valid",
    "check_added",
    "check_times",
    "column",
    "day_and_rest",
    "is_stamp",
    "local_ticks",
    "rate_of",
    "session_zone",
    "ticks",
]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_RATES = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY_S = 86_400


@dataclass(frozen=True)
class Ticks:
    """Numbers and their validity (None: all valid). A single number applies to all rows."""

    values: Int64s
    valid: Bools | None


def ticks(value: Value) -> Ticks:
    """The numbers of a column of times, intervals or integers."""
    if isinstance(value, pa.Scalar):
        value = pa.array([value.as_py()], value.type) if _is_plain(value.type) else pa.repeat(value, 1)
    valid = None
    if value.null_count:
        valid = np.asarray(value.is_valid())
    width = value.type.bit_width
    if not pa.types.is_integer(value.type):
        value = value.view(pa.int32() if width == 32 else pa.int64())
    if valid is not None:
        # NULLs get a value that occurs: kernels depend on the range of the numbers, which must stay narrow.
        value = pc.fill_null(value, value[int(np.argmax(valid))] if valid.any() else 0)
    return Ticks(value.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), valid)


def _is_plain(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_))


def both_valid(*sides: Ticks) -> Bools | None:
    """Marks rows in which neither side is NULL."""
    valid: Bools | None = None
    for side in sides:
        if side.valid is not None:
            valid = side.valid if valid is None else valid & side.valid
    return valid


def column(type_: DataType, values: Int64s, valid: Bools | None, rows: int) -> pa.Array:
    """A column of the data type from numbers; NULL where not `valid`."""
    arrow = type_.arrow
    values = np.broadcast_to(values, (rows,))
    mask = None if valid is None else ~np.broadcast_to(valid, (rows,))
    if arrow.bit_width < 64:
        limit = 2 ** (arrow.bit_width - 1)
        outside = (values >= limit) | (values < -limit)
        if mask is not None:
            outside &= ~mask
        if outside.any():
            raise EvaluationError(beyond_range("the result", type_), int(np.argmax(outside)))
        values = values.astype(np.int32 if arrow.bit_width == 32 else np.dtype(f"int{arrow.bit_width}"))
    whole = pa.array(values, mask=mask)
    return whole if whole.type == arrow else whole.view(arrow)


def rate_of(type_: DataType) -> int:
    """Ticks per second; for a DATE 1, as if it were in seconds."""
    if isinstance(type_, DateType):
        return 1
    arrow = type_.arrow
    return _RATES[arrow.unit]


def session_zone(session: SessionFacts) -> Zone:
    """The session's zone."""
    zone = zone_of(session.zone)
    if zone is None:
        raise EvaluationError(
            f"the session's zone {session.zone!r} is unknown. Set 'table.local-time-zone' to a known one"
        )
    return zone


def local_ticks(type_: DataType, values: Int64s, session: SessionFacts) -> Int64s:
    """Local time in ticks: for TIMESTAMP_LTZ in the session's zone; for a DATE its midnight in seconds."""
    if isinstance(type_, DateType):
        return values * DAY_S
    if isinstance(type_, LocalZonedTimestampType):
        rate = rate_of(type_)
        offsets = session_zone(session).offsets(values // rate)
        check_added(type_, values, offsets, rate)
        return values + offsets * rate
    return values


def moment_ticks(type_: DataType, values: Int64s, session: SessionFacts) -> Int64s:
    """The inverse of `local_ticks`: local time in ticks to values of the type."""
    if isinstance(type_, DateType):
        return values // DAY_S
    if isinstance(type_, LocalZonedTimestampType):
        rate = rate_of(type_)
        offsets = session_zone(session).local_offsets(values // rate)
        check_added(type_, values, -offsets, rate)
        return values - offsets * rate
    return values


def day_and_rest(values: Int64s, rate: int) -> tuple[Int64s, Int64s]:
    """The day since 1970 and the ticks since its midnight."""
    day = values // (DAY_S * rate)
    return day, values - day * (DAY_S * rate)


def check_added(type_: DataType, values: Int64s, amounts: Int64s, factor: int) -> None:
    """Rejects sums of values and amounts × factor that overflow 64 bits; the error names the first row."""
    least = int(values.min(initial=0)) + int(amounts.min(initial=0)) * factor
    greatest = int(values.max(initial=0)) + int(amounts.max(initial=0)) * factor
    if least >= -(2**63) and greatest < 2**63:
        return
    for row, (value, amount) in enumerate(
        zip(*(each.tolist() for each in np.broadcast_arrays(values, amounts)), strict=True)
    ):
        if not -(2**63) <= value + amount * factor < 2**63:
            raise EvaluationError(beyond_range("the result", type_), row)


def check_times(type_: DataType, values: Int64s, factor: int) -> None:
    """Rejects products of values and a factor that overflow 64 bits; the error names the first row."""
    check_added(type_, np.zeros(1, np.int64), values, factor)


def is_stamp(type_: DataType) -> bool:
    """Whether the type is a timestamp, with or without local time zone."""
    return isinstance(type_, TimestampType | LocalZonedTimestampType)

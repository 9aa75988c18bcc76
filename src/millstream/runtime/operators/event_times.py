"""Validates the timestamps of records for operators of event time: every record needs one within bounds.

A timestamp near the ends of the 64-bit range is rejected: adding the length of a window to it would overflow. Such
timestamps occur in results of windows without an end, and in programs that use them to mean "never".
"""

from __future__ import annotations

from millstream.errors import ProgramError
from millstream.records.batch import Batch, Timestamps
from millstream.runtime.operators.user_code import UserCall

__all__ = ["EVENT_TIME_MAX", "event_times", "window_times"]

EVENT_TIME_MAX = 2**62
"""Event times lie between this and its negative: a range of more than a hundred million years each way."""


def event_times(batch: Batch, call: UserCall, usage: str, role: str) -> Timestamps:
    """The timestamps of a non-empty batch; fails if it has no timestamps. `usage`: how the operator uses event time,
    for the message."""
    stamps = batch.timestamps
    if stamps is None:
        error = ProgramError(
            f"'{call.operator}' {usage} event time, and its records have no timestamps. Call "
            "assign_timestamps_and_watermarks() before key_by() with a strategy that has with_timestamp_assigner(...)"
        )
        raise call.failed(error, role, tuple(batch.slice(0, 1).values()))
    return stamps


def window_times(batch: Batch, call: UserCall, role: str) -> Timestamps:
    """The same for windows, which need room for the window after each timestamp."""
    stamps = event_times(batch, call, "has windows of", role)
    if len(stamps) and not -EVENT_TIME_MAX <= stamps.min() <= stamps.max() <= EVENT_TIME_MAX:
        row = int(((stamps > EVENT_TIME_MAX) | (stamps < -EVENT_TIME_MAX)).argmax())
        error = ProgramError(
            f"'{call.operator}' has windows of event time, and a record has the timestamp {int(stamps[row])}, which is "
            "out of range. A timestamp is in milliseconds since 1970-01-01 UTC: assign one before key_by(), or drop "
            "the record"
        )
        raise call.failed(error, role, tuple(batch.slice(row, 1).values()))
    return stamps

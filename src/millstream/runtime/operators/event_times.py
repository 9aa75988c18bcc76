"""The timestamps of records, where an operator goes by event time: every record has one, and it is a time.

A timestamp at one of the ends of 64 bits is no time of an event: the length of a window added to it has no place there.
Results of windows without an end have such a timestamp, and so have records of programs that mean "never" by it.
"""

from __future__ import annotations

from millstream.errors import ProgramError
from millstream.records.batch import Batch, Timestamps
from millstream.runtime.operators.user_code import UserCall

__all__ = ["EVENT_TIME_MAX", "event_times", "window_times"]

EVENT_TIME_MAX = 2**62
"""Event times are between this and its negative: that many milliseconds are more than a hundred million years."""


def event_times(batch: Batch, call: UserCall, what: str, role: str) -> Timestamps:
    """The timestamps of records, of which there are some; or the failure of the first, where they have none. `what`:
    how the operator goes by event time."""
    stamps = batch.timestamps
    if stamps is None:
        error = ProgramError(
            f"'{call.operator}' {what} event time, and its records have no timestamps. Call "
            "assign_timestamps_and_watermarks() before key_by() with a strategy that has with_timestamp_assigner(...)"
        )
        raise call.failed(error, role, tuple(batch.slice(0, 1).values()))
    return stamps


def window_times(batch: Batch, call: UserCall, role: str) -> Timestamps:
    """The same for windows, which need some time behind each record."""
    stamps = event_times(batch, call, "has windows of", role)
    if len(stamps) and not -EVENT_TIME_MAX <= stamps.min() <= stamps.max() <= EVENT_TIME_MAX:
        row = int(((stamps > EVENT_TIME_MAX) | (stamps < -EVENT_TIME_MAX)).argmax())
        error = ProgramError(
            f"'{call.operator}' has windows of event time, and a record has the timestamp {int(stamps[row])}, which is "
            "no time. A timestamp is in milliseconds since 1970-01-01 UTC: assign others before key_by(), or drop it"
        )
        raise call.failed(error, role, tuple(batch.slice(row, 1).values()))
    return stamps

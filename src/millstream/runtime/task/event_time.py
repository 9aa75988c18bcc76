"""Timestamps and watermarks: applies watermark strategies to batches and tracks idleness.

The event time of each path through a job is one number; where paths meet, it is their minimum (`records.watermarks`).
An operator whose inputs are all idle does not advance.

A **Timekeeper** applies one strategy to one split or subtask for one epoch. Its state between epochs is an
`EventTimeState`, plain data in the manifest: user-defined generators are created and restored in every epoch.
Watermarks never decrease.

The event time of an operator's subtask never decreases between epochs either. After an exchange all subtasks share the
operator's event time. Downstream of an operator that assigns timestamps in mid-stream, without an exchange in between,
each subtask has its own event time and resumes from it (`restored_event_time`). Only operators chained to a source
resume from the minimum of its subtasks: a split may move to another subtask, and its records must not be late there.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.checkpoint.plain import plain
from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo
from millstream.common.watermark_strategy import FieldTimestamps, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from millstream.errors import ProgramError
from millstream.graph.notices import warn_once
from millstream.records.columns import KIND_COLUMN
from millstream.records.shapes import plain_type
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK, REAL_WATERMARK_MAX
from millstream.runtime.operators.user_code import UserCall
from millstream.state.keys.key_columns import key_group_range
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.times import EventTimeState

if TYPE_CHECKING:
    from millstream.records.batch import Batch, Timestamps
    from millstream.runtime.tables.row_clock import RowClock

__all__ = ["Timekeeper", "restored_event_time", "restored_time", "restored_times"]

# From 2001 to 2049 in seconds since 1970; in milliseconds, the second half of January 1970.
_SECONDS_OF_OUR_TIMES = range(1_000_000_000, 2_500_000_000)
_NO_WATERMARKS = WatermarkStrategy.no_watermarks()


def restored_times(subtasks: Mapping[int, SubtaskAccount], parallelism: int) -> list[EventTimeState]:
    """The restored times of `parallelism` subtasks, from the accounts of the last epoch.

    After a change of parallelism records are routed differently: all new subtasks start from the smallest watermark of
    the old ones, with new generators, so that no subtask assumes the progress of another.

    >>> accounts = {0: SubtaskAccount(time=EventTimeState(7)), 1: SubtaskAccount(time=EventTimeState(5))}
    >>> [time.watermark for time in restored_times(accounts, 3)]
    [5, 5, 5]
    """
    times = [_time_of(subtasks[subtask]) for subtask in range(len(subtasks))]
    if len(times) == parallelism:
        return times
    lowest = min((time.watermark for time in times), default=MIN_WATERMARK)
    active = [time.active_ms for time in times if time.active_ms is not None]
    return [EventTimeState(lowest, max(active, default=None))] * parallelism


def restored_time(subtasks: Mapping[int, SubtaskAccount], subtask: int, parallelism: int) -> EventTimeState:
    """The restored time of one subtask. The accounts of others are read only after a change of parallelism."""
    if len(subtasks) == parallelism:
        return _time_of(subtasks[subtask])
    return restored_times(subtasks, parallelism)[subtask]


def _time_of(account: SubtaskAccount) -> EventTimeState:
    assert account.time is not None, "an operator that tracks time reports it in every epoch"
    return account.time


def restored_event_time(
    times: Sequence[int], subtask: int, parallelism: int, max_parallelism: int | None = None
) -> int:
    """The restored event time of a subtask, from the event times of the last epoch's subtasks.

    At the same parallelism, a subtask resumes from its own event time. After a change it takes the minimum over its
    predecessors: for keyed operators (`max_parallelism` key groups), the subtasks that owned one of its key groups; for
    others, all of them, since records are routed differently. Time may then go back for keys of a faster subtask; the
    maximum would drop records as late that were on time in their subtask.

    >>> [restored_event_time([7, 5], subtask, 2) for subtask in range(2)]
    [7, 5]
    >>> [restored_event_time([7, 5], subtask, 3, max_parallelism=128) for subtask in range(3)]
    [7, 5, 5]
    >>> restored_event_time([7, 5], 0, 3)
    5
    """
    if len(times) == parallelism:
        return times[subtask]
    if max_parallelism is None:
        return min(times)
    groups = key_group_range(subtask, parallelism, max_parallelism)
    ranges_before = (key_group_range(before, len(times), max_parallelism) for before in range(len(times)))
    return min(
        time
        for time, before in zip(times, ranges_before, strict=True)
        if before.start < groups.stop and groups.start < before.stop
    )


class Timekeeper:
    """Applies one strategy to one split or subtask for one epoch, starting from the stored time.

    `rows` reads the times of a table, if the strategy is expressions over its columns."""

    def __init__(
        self,
        strategy: WatermarkStrategy | None,
        start: EventTimeState,
        call: UserCall,
        now_ms: int = 0,
        rows: RowClock | None = None,
    ) -> None:
        self._now_ms, self._rows = now_ms, rows
        self._strategy = strategy or _NO_WATERMARKS
        self._call = call
        self._start = start
        self._watermark = start.watermark
        self._records = 0
        self.timeout_ms = self._strategy.idle_timeout_ms
        assigner = self._strategy.timestamp_assigner
        self._extract = None if assigner is None else call.bind(assigner, "extract_timestamp", "timestamp assigner")
        factory = self._strategy.generator_factory
        self._generator = None if factory is None else _RunningGenerator(factory, start, call)

    def stamp(self, batch: Batch) -> Batch:
        """Assigns timestamps to a batch and advances event time."""
        if self._rows is not None:
            self._records += len(batch)
            batch.timestamps, reached = self._rows.times(batch, self._now_ms)
            if reached is not None:
                self._watermark = max(self._watermark, min(reached, REAL_WATERMARK_MAX))
            return batch
        if self._extract is not None:
            batch.timestamps = self._timestamps(batch)
            if not self._records and len(batch):
                _warn_of_unit(int(batch.timestamps[0]), self._call.site)
        self._records += len(batch)
        delay_ms = self._strategy.max_out_of_orderness_ms
        if self._generator is not None:
            self._generator.take(batch)
        elif delay_ms is not None and batch.timestamps is not None and len(batch):
            # One less than the largest timestamp: another record with the same timestamp may still arrive.
            reached = min(int(batch.timestamps.max()) - delay_ms - 1, REAL_WATERMARK_MAX)
            self._watermark = max(self._watermark, reached)
        return batch

    def end(self, now_ms: int) -> EventTimeState:
        """Ends the epoch; returns the time to store."""
        active_ms = None
        if self.timeout_ms is not None:
            active_before_ms = self._start.active_ms
            active_ms = now_ms if self._records or active_before_ms is None else active_before_ms
        if self._generator is not None:
            return self._generator.end(active_ms)
        return EventTimeState(self._watermark, active_ms)

    def _timestamps(self, batch: Batch) -> Timestamps:
        column = _column_of_times(batch, self._strategy.timestamp_assigner)
        if column is not None:
            return column
        values = batch.values()
        previous = batch.timestamps.tolist() if batch.timestamps is not None else [MIN_WATERMARK] * len(values)
        remaining = iter(values)
        try:
            stamps = list(map(self._extract, remaining, previous))  # type: ignore[arg-type]
        except Exception as error:
            raise self._call.failed(error, "timestamp assigner", self._call.current(values, remaining)) from error
        if not set(map(type, stamps)) <= {int}:
            self._reject_other_types(stamps, values)
        try:
            return np.array(stamps, dtype=np.int64)
        except OverflowError:
            i = next(i for i, stamp in enumerate(stamps) if not MIN_WATERMARK <= stamp <= MAX_WATERMARK)
            raise self._call.failed(_not_a_timestamp(stamps[i]), "timestamp assigner", (values[i],)) from None

    def _reject_other_types(self, stamps: list[Any], values: list[Any]) -> None:
        for i, stamp in enumerate(stamps):
            # A bool is an int in Python, but not a timestamp. numpy's integers are accepted.
            if isinstance(stamp, bool) or not isinstance(stamp, (int, np.integer)):
                raise self._call.failed(_not_a_timestamp(stamp), "timestamp assigner", (values[i],))


def _warn_of_unit(first: int, site: str) -> None:
    """Warns if the first timestamp of an epoch looks like seconds (a time in January 1970) or like microseconds or
    nanoseconds (thousands of years ahead)."""
    if first in _SECONDS_OF_OUR_TIMES:
        where, unit, change = "in January 1970", "seconds", "multiply it by 1000"
    elif first // 1_000_000 in _SECONDS_OF_OUR_TIMES:
        where, unit, change = "tens of thousands of years ahead", "microseconds", "divide it by 1000"
    elif first // 1_000_000_000 in _SECONDS_OF_OUR_TIMES:
        where, unit, change = "millions of years ahead", "nanoseconds", "divide it by 1,000,000"
    else:
        return
    warn_once(
        "unit of time",
        f"the timestamp {first} is {where}. A timestamp is in milliseconds since 1970-01-01 UTC: if this one is in "
        f"{unit}, {change}",
        site,
    )


def _column_of_times(batch: Batch, assigner: Any) -> Timestamps | None:
    """The timestamps of a batch, if one of its columns holds them for every record."""
    if not isinstance(assigner, FieldTimestamps) or not batch.typed or batch.type_info is None:
        return None
    columns = batch.columns()
    kinds = columns.schema.get_field_index(KIND_COLUMN)
    fields = columns.num_columns - (kinds >= 0)
    field = assigner.field if isinstance(assigner.field, int) else columns.schema.get_field_index(assigner.field)
    # A missing, incomplete or mistyped column is left to the slow path, which names the record.
    if not 0 <= field < fields or not isinstance(plain_type(batch.type_info), RowTypeInfo | TupleTypeInfo):
        return None
    column = columns.column(field)
    if column.null_count or (kinds >= 0 and columns.column(kinds).null_count):
        return None
    if pa.types.is_signed_integer(column.type):
        return column.to_numpy().astype(np.int64, copy=False)  # type: ignore[no-any-return]
    if pa.types.is_timestamp(column.type) and column.type.unit == "us":
        return column.cast(pa.int64()).to_numpy() // 1_000  # type: ignore[no-any-return]
    return None


def _not_a_timestamp(stamp: Any) -> ProgramError:
    is_datetime = isinstance(stamp, datetime.datetime)
    advice = ". Write int(...timestamp() * 1000)" if is_datetime else ". Write int(...)" if type(stamp) is float else ""
    return ProgramError(
        f"the timestamp assigner returned {stamp!r} ({type(stamp).__name__}); "
        f"a timestamp is an int of 64 bits: milliseconds since 1970-01-01 UTC{advice}"
    )


class _RunningGenerator(WatermarkOutput):
    """A user-defined generator during one epoch, and the output that it writes to."""

    _ROLE = "watermark generator"

    def __init__(self, factory: Any, start: EventTimeState, call: UserCall) -> None:
        self._call = call
        self._watermark, self._idle = start.watermark, start.marked_idle
        with call.running(self._ROLE):
            generator = factory()
            if not isinstance(generator, WatermarkGenerator):
                raise ProgramError(
                    f"the factory passed to for_generator returned {generator!r} ({type(generator).__name__}), "
                    "expected a WatermarkGenerator. Derive your class from it"
                )
            if start.generator is not None:
                generator.restore(start.generator)
        self._generator: WatermarkGenerator = generator

    def take(self, batch: Batch) -> None:
        """Passes every record to the generator."""
        values, on_event = batch.values(), self._generator.on_event
        stamps = batch.timestamps.tolist() if batch.timestamps is not None else [MIN_WATERMARK] * len(values)
        remaining = iter(values)
        try:
            for value, stamp in zip(remaining, stamps, strict=False):
                on_event(value, stamp, self)
        except Exception as error:
            raise self._call.failed(error, self._ROLE, self._call.current(values, remaining)) from error

    def end(self, active_ms: int | None) -> EventTimeState:
        """Calls the periodic emit one last time and snapshots the generator."""
        with self._call.running(self._ROLE):
            self._generator.on_periodic_emit(self)
            subject = f"The snapshot of {type(self._generator).__name__}"
            state = plain(self._generator.snapshot(), subject)
        return EventTimeState(self._watermark, active_ms, self._idle, state)

    def emit_watermark(self, timestamp_ms: int) -> None:
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, (int, np.integer)):
            raise ProgramError(
                f"emit_watermark got {timestamp_ms!r} ({type(timestamp_ms).__name__}); "
                "a watermark is an int: milliseconds since 1970-01-01 UTC"
            )
        self._idle = False
        self._watermark = max(self._watermark, min(int(timestamp_ms), REAL_WATERMARK_MAX))

    def mark_idle(self) -> None:
        self._idle = True

    def mark_active(self) -> None:
        self._idle = False

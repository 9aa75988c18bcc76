"""Windows with fixed bounds and one value each: folds the records of each window together.

For a tumbling, sliding or cumulative window whose trigger fires at the window's end, every record is handled alike: it
is folded into the window's value. So only the user's function runs per record. The windows of all records are computed
at once, records are sorted by key and window, and each window's value is read once, folded with its records, and
written back.

A stored window is a row (key, number of the window) → value, due when it fires; a window that has fired but may still
receive late records is due when it expires. Windows are read only when records arrive for them and when they are due.

Results equal those of the general operator (`operator`, which applies Flink's rules one window at a time): a late
record within the allowed lateness fires its window at once; one beyond it is dropped and counted, or goes to the side
output.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.rolling_records import mutable_copy
from millstream.plan.operations import FoldedWindow
from millstream.records.batch import Batch
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.keyed_backend import Visit
from millstream.runtime.keyed.states import StateHandle
from millstream.runtime.operators.keyed_operator import Part
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.operators.suspicious_results import warn_if_iterated
from millstream.runtime.operators.user_code import Described
from millstream.runtime.task.spec import EpochSpec
from millstream.runtime.windows.contents import Fold
from millstream.runtime.windows.contexts import FunctionContext
from millstream.runtime.windows.window_functions import WindowFunctions
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.segments.lookup import expanded
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import WINDOW_VALUES
from millstream.state.tables.layout import NEVER_MS
from millstream.state.tables.state_table import StateTable

__all__ = ["FoldingWindowOperator"]

# The number of records, or of records times windows, that are processed at once.
_PIECE_RECORDS = 16_384
_PIECE_PAIRS = 262_144
# Window numbers are encoded as offsets, unless times are so far apart that this would overflow.
_SPAN_MAX = 1 << 32

_Place = tuple[int, int]
"""A key's index in the visit, and a window number."""


class FoldingWindowOperator(WindowFunctions):
    """A node of folded windows, which are `operation.panes`."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = setting.node.operation
        assert isinstance(operation, FoldedWindow)
        self._folded = operation
        self._panes = operation.panes
        self._fold = Fold(operation)
        self._codec = task_codec(operation.contents_type, f"the windows of '{self.node.name}'")
        self._table = StateTable(
            WINDOW_VALUES,
            self.node.inputs[0].key_type,
            setting.context.max_parallelism,
            self._codec,
            sub_type=pa.int64(),
            has_due=True,
        )
        self.backend.keep(WINDOW_VALUES, StateHandle(self._table, self.backend.scope))
        self._function_context = FunctionContext(self.time, self.store, self.of_key, False)
        self._is_batch = setting.facts.batch
        self._begin()

    def _begin(self) -> None:
        self._values: dict[_Place, Any] = {}
        self._out: list[Any] = []
        self._last_results: Any = None  # the last return value of the window function
        self._stamps: list[int] = []
        self._windows: dict[int, Any] = {}

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._begin()

    # --- time -------------------------------------------------------------------------------------------------------

    def _late_through(self) -> int:
        """Records before this time are late. In processing time and in BATCH no record is late."""
        is_late_possible = self._panes.is_event_time and not self._is_batch
        return self.time.watermark if is_late_possible else MIN_WATERMARK

    def _due_through(self) -> int:
        """The time up to which windows are due."""
        if self._is_batch:
            return MAX_WATERMARK if self.time.watermark == MAX_WATERMARK else MIN_WATERMARK
        return self.time.watermark if self._panes.is_event_time else self.time.now_ms - 1

    def _cleanup_times(self, ends: Int64s) -> Int64s:
        """When windows expire."""
        lateness_ms = 0 if self._is_batch else self._panes.lateness_ms
        return ends - 1 + lateness_ms

    # --- records ----------------------------------------------------------------------------------------------------

    def work(self, visit: Visit) -> Iterator[Part]:
        times = self._times(visit.records)
        start = 0
        while start < len(visit):
            rows, numbers = self._windows_of(times[start : start + _PIECE_RECORDS])
            stop = start + _PIECE_RECORDS
            if len(rows) > _PIECE_PAIRS:  # many windows per record: process fewer records
                stop = start + max(int(rows[_PIECE_PAIRS]), 1)
                rows, numbers = self._windows_of(times[start:stop])
            piece = visit.records.slice(start, min(stop, len(visit)) - start)
            self._process_piece(piece, times[start:stop], visit, visit.codes[start:stop], rows, numbers)
            yield from self._results()
            start = stop
        with self.call.running("state"):
            self._write_back(visit)

    def _times(self, records: Batch) -> Int64s:
        if not self._panes.is_event_time:
            return np.full(len(records), self.time.now_ms, dtype=np.int64)
        self.check_timestamps(records)
        assert records.timestamps is not None
        return records.timestamps

    def _windows_of(self, times: Int64s) -> tuple[Int64s, Int64s]:
        """The (record, window) pairs: the record's row and the window's number."""
        panes = self._panes.pane_of(times)
        first = self._panes.first_window(panes)
        if self._panes.is_tumbling:
            return np.arange(len(times)), first
        numbers, rows = expanded(first, np.maximum(self._panes.last_window(panes) + 1, first))
        return rows, numbers

    def _process_piece(
        self, piece: Batch, times: Int64s, visit: Visit, codes: Int64s, rows: Int64s, numbers: Int64s
    ) -> None:
        now = self._late_through()
        is_live = numbers > self._panes.dead_through(now)
        if not is_live.all():
            rows, numbers = rows[is_live], numbers[is_live]
        if self._panes.has_gaps or not is_live.all():
            self._handle_late(piece, times, rows, now)
        if not len(rows):
            return
        order, bounds = _by_place(codes[rows], numbers)
        firsts = order[bounds[:-1]]
        places = list(zip(codes[rows[firsts]].tolist(), numbers[firsts].tolist(), strict=True))
        with self.call.running("state"):
            self._read_values(visit.keys, places)
        self._fold_in(piece, rows[order], bounds, places, self._panes.fired_through(now))

    def _handle_late(self, piece: Batch, times: Int64s, placed: Int64s, now: int) -> None:
        """Drop late records without a window, or emit them as late. `placed`: the rows with a window."""
        late = times + self._panes.lateness_ms <= now
        late[placed] = False
        for row in np.flatnonzero(late).tolist():
            self.emit_late(piece.slice(row, 1).values()[0], int(times[row]), self._out, self._stamps)

    def _read_values(self, keys: KeyColumn, places: list[_Place]) -> None:
        """Read the values of windows not yet read in this visit."""
        new = [place for place in places if place not in self._values]
        if not new or self._table.view.is_empty:
            return
        codes, numbers = (np.array(column, dtype=np.int64) for column in zip(*new, strict=True))
        lookup = self._table.view.get_pairs(keys.take(codes), pa.array(numbers))
        if lookup.values is not None and len(lookup.values):
            positions = np.flatnonzero(lookup.mask).tolist()
            self._values.update(zip([new[i] for i in positions], self._codec.decode(lookup.values), strict=True))

    def _fold_in(self, piece: Batch, rows: Int64s, bounds: list[int], places: list[_Place], fired: int) -> None:
        """Fold records into the value of every window. `rows` of the piece are sorted by window."""
        values, at = piece.values(), rows.tolist()
        ordered = [values[row] for row in at]
        stamps = None if piece.timestamps is None else piece.timestamps[rows].tolist()
        folded, settle, add_all = self._values, self._codec.settle, self._fold.add_all
        part, remaining = ordered, iter(ordered)
        try:
            for place, start, stop in zip(places, bounds, bounds[1:], strict=False):
                part = ordered[start:stop]
                remaining = iter(part)
                times = None if stamps is None else stamps[start:stop]
                if place[1] > fired:
                    folded[place] = settle(add_all(folded.get(place), remaining, times))
                else:
                    self._fold_late(place, remaining, times)
        except Exception as error:
            raise self.call.failed(error, self.role, self.call.current(part, remaining)) from error

    def _fold_late(self, place: _Place, remaining: Iterator[Any], times: list[int] | None) -> None:
        """A window that has fired fires again for every record."""
        for i, value in enumerate(remaining):
            folded = self._fold.add(self._values.get(place), value, None if times is None else times[i])
            self._values[place] = self._codec.settle(folded)
            self._fire(
                self.backend.scope.keys[place[0]], place[1], mutable_copy(self._fold.result(self._values[place]))
            )

    def _write_back(self, visit: Visit) -> None:
        """Write the visit's windows to the table."""
        if not self._values:
            return
        codes, numbers = (np.array(column, dtype=np.int64) for column in zip(*self._values, strict=True))
        ends = self._panes.ends(numbers)
        has_fired = numbers <= self._panes.fired_through(self._late_through())
        due_ms = np.where(has_fired, self._cleanup_times(ends), ends - 1)
        self._table.put_values(visit.keys.take(codes), list(self._values.values()), pa.array(numbers), due_ms)
        self._values = {}

    # --- windows that are due ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Close due processing-time windows, before any element."""
        if not self._panes.is_event_time and not self._is_batch:
            self._close_due(None)

    def advance(self, watermark: int) -> int:
        before = self._due_through() if self._panes.is_event_time else None
        reached = super().advance(watermark)
        self._close_due(before)
        return reached

    def _close_due(self, before: int | None) -> None:
        """Fire the due windows, and delete those that can no longer change."""
        started = time.perf_counter_ns()
        with self.call.running("state"):
            self._table.settle()
            through = min(self._due_through(), NEVER_MS - 1)
            due = None if self._table.view.is_empty else self._table.view.scan_due(through, after_ms=before)
        for start in range(0, 0 if due is None else due.num_rows, _PIECE_RECORDS):
            assert due is not None
            self._close(due.slice(start, _PIECE_RECORDS))
            self.busy_ns += time.perf_counter_ns() - started
            for tag, batch in self._results():
                self._emit_part(tag, batch)
            started = time.perf_counter_ns()
        self.store.leave()
        self.busy_ns += time.perf_counter_ns() - started

    def _close(self, rows: pa.RecordBatch) -> None:
        keys = KeyColumn(rows.column("hash").to_numpy(), rows.column("key"))
        numbers, due_ms = rows.column("sub").to_numpy(), rows.column("due_ms").to_numpy()
        ends = self._panes.ends(numbers)
        cleanup_ms = self._cleanup_times(ends)
        fires, is_retained = due_ms == ends - 1, cleanup_ms > self._due_through()
        with self.call.running("state"):
            values, key_values = self._codec.decode(rows.column("value")), self._table.keys_of(rows.column("key"))
            if not self._folded.passes_through:
                self.prefetch_states(key_values, [self.window(number) for number in numbers.tolist()])
        self._fire_all(key_values, numbers.tolist(), values, fires.tolist(), is_retained.tolist())
        with self.call.running("state"):
            expired, retained = np.flatnonzero(~is_retained), np.flatnonzero(is_retained)
            if len(expired):
                self._table.changes.delete(keys.take(expired), subs=pa.array(numbers[expired]))
            if len(retained):
                column = rows.column("value").take(pa.array(retained))
                self._table.changes.put(
                    keys.take(retained), column, subs=pa.array(numbers[retained]), due_ms=cleanup_ms[retained]
                )

    def _fire_all(
        self, keys: list[Any], numbers: list[int], values: list[Any], fires: list[bool], retained: list[bool]
    ) -> None:
        result, passes = self._fold.result, self._folded.passes_through
        for key, number, value, fire, is_retained in zip(keys, numbers, values, fires, retained, strict=True):
            try:
                if fire:
                    self._fire(key, number, result(value))
                if not is_retained and not passes:
                    self._enter(key, number)
                    self._operation.function.clear(self.window(number), self._function_context)
            except Exception as error:
                raise self.call.failed(
                    error, self.role, (Described(f"window {self.window(number)} of key {key!r}"),)
                ) from error

    def _enter(self, key: Any, number: int) -> None:
        self.enter_place(key, self.window(number))

    def _fire(self, key: Any, number: int, value: Any) -> None:
        """Emit the result of a window."""
        if self._folded.passes_through:
            self._out.append(value)
        else:
            self._enter(key, number)
            self._last_results = results = self._function(key, self.window(number), self._function_context, value)
            if results is not None:
                self._out.extend(results)
        stamp = int(self._panes.ends(number)) - 1
        self._stamps.extend([stamp] * (len(self._out) - len(self._stamps)))

    def window(self, number: int) -> Any:
        """The window of this number, as functions see it."""
        window = self._windows.get(number)
        if window is None:
            start, end = self._panes.bounds(number)
            window = self._windows[number] = self._folded.window_type(int(start), int(end))
        return window

    def _results(self) -> Iterator[Part]:
        if self._out:
            warn_if_iterated(self._last_results, self.node, "window")
            out, stamps = self._out, np.array(self._stamps, dtype=np.int64)
            self._out, self._stamps = [], []
            yield from self._parts(out, stamps)

    def write_states(self) -> SubtaskAccount:
        # Readers of the store, and programs with changed windows, must know which window a number identifies.
        by_clock = not self._panes.is_event_time
        account = replace(super().write_states(), windows_ms=self._panes.lengths_ms, by_clock=by_clock)
        if self._panes.is_event_time or self._is_batch:
            return account
        self._table.settle()
        due_ms = None if self._table.view.is_empty else self._table.view.min_due(after_ms=self.time.now_ms - 1)
        # A window ends after its last millisecond.
        return account if due_ms is None else account.waking_at(due_ms + 1)


def _by_place(codes: Int64s, numbers: Int64s) -> tuple[Int64s, list[int]]:
    """The rows sorted by key and window, stable, and the start of each place; the last bound is the end.

    >>> order, bounds = _by_place(np.array([1, 0, 1, 1]), np.array([7, 7, 8, 7]))
    >>> order.tolist(), bounds
    ([1, 0, 3, 2], [0, 1, 3, 4])
    """
    first = int(numbers.min())
    span = int(numbers.max()) - first + 1
    if span > _SPAN_MAX:
        distinct, numbers = np.unique(numbers, return_inverse=True)
        first, span = 0, len(distinct)
    places = codes * span + (numbers - first)
    # numpy sorts 16-bit numbers by radix, several times faster than wider ones.
    narrow = places.astype(np.uint16) if int(places.max()) < 1 << 16 else places
    order = np.argsort(narrow, kind="stable")
    begins = np.flatnonzero(np.diff(places[order])) + 1
    return order, [0, *begins.tolist(), len(order)]

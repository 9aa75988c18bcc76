"""Final columnar window aggregation, after the exchange: partials are merged into panes, panes into windows.

In an epoch:

1. partials are gathered; partials too late for every window are dropped and counted;
2. when the input is complete and time has moved from `before` to `now`, the stored panes that end in between are read,
   and merged with the gathered ones; so are the panes of keys with late records, and the other panes that received
   records. The last are looked up if they are few, else scanned by their end times: a search costs as much as reading
   some rows in order;
3. ended windows that can still change fire again if they received a record: once per epoch;
4. windows that have ended since fire for the first time;
5. changed panes that a later window needs are written.

A pane is written once per epoch in which it receives records, whatever the number of windows that contain it. Panes
created and expired within an epoch are never written, and expiry costs nothing (`pane_table`).

Time is event time, or the clock. In processing time a window ends when the clock has passed its last millisecond, and
nothing is late. In BATCH the only time is the end of input: every window fires once, and no record is late.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.aggregation.groups import Groups, groups_of
from millstream.aggregation.pane_firing import FiredWindows, WindowRange, fired_windows
from millstream.aggregation.pane_rows import Accumulators, PaneRows, accumulator_type
from millstream.errors import ProgramError
from millstream.plan.operations import PaneAggregate
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.queryable_states import queryable_of_panes
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.windows.pane_table import PaneHandle, PaneTable
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import PANES

__all__ = ["PaneOperator"]

_LATE_RECORDS = "numLateRecordsDropped"
# Partials are merged when they reach this size, and again when they have doubled.
_MERGED_BYTES_MIN = 128 << 20
# Looking up a pane costs about as much as reading this many in order.
_ROWS_PER_LOOKUP = 3
_NO_TIME = (MAX_WATERMARK, -MAX_WATERMARK)


class PaneOperator(KeyedOperator):
    """Windows of built-in aggregates, vectorised."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, key_type = self.node.operation, self.node.inputs[0].key_type
        assert isinstance(operation, PaneAggregate) and key_type is not None and self.node.output_type is not None
        self._operation, self._windows, self._type = operation, operation.windows, self.node.output_type
        self._schema = typed_schema(self._type)
        self._accumulators = Accumulators(operation.measures)
        codec = task_codec(accumulator_type(operation.measures), f"state '{PANES}' of '{self.node.name}'")
        table = PaneTable(PANES, key_type, setting.context.max_parallelism, codec, self._windows)
        self._panes = PaneHandle(table, self.backend.scope, self._windows, self._accumulators)
        self.backend.keep(PANES, self._panes)
        self._late_records = setting.context.metrics.counter(_LATE_RECORDS)
        self._batch = setting.facts.batch
        self._before_ms = MIN_WATERMARK

    # --- an epoch -----------------------------------------------------------------------------------------------

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        self._check_panes(accounts.values())
        self._before_ms = self._time_before(accounts.values())
        self._panes.table.time_ms = self._before_ms
        self._partials: list[PaneRows] = []
        self._partial_bytes, self._partial_bytes_max = 0, _MERGED_BYTES_MIN
        self._next_end: int | None = None
        self._started_ns = 0
        super().open_states(accounts)

    def _check_panes(self, accounts: Iterable[SubtaskAccount]) -> None:
        """Reject stored panes that do not align with the program's windows."""
        for account in accounts:
            stored = account.pane_ms
            if stored is not None and stored != self._own_panes:
                previous, current = (
                    f"panes of {length} ms from {begin} ms on" for length, begin in (stored, self._own_panes)
                )
                error = ProgramError(
                    f"the windows of '{self.node.name}' were stored in {previous}, but the program now has "
                    f"{current}. Use the previous windows, or give them another uid to start afresh"
                )
                raise self.call.failed(error, "state")

    @property
    def _own_panes(self) -> tuple[int, int]:
        """The length of panes, and their offset."""
        return self._windows.pane_ms, self._windows.offset_ms % self._windows.pane_ms

    def _time_before(self, accounts: Iterable[SubtaskAccount]) -> int:
        """The time through which windows had fired when the last epoch ended."""
        if self._batch:
            return MAX_WATERMARK if self.time.watermark == MAX_WATERMARK else MIN_WATERMARK
        if self._windows.is_event_time:
            return self.time.watermark
        fired_ms = [account.fired_ms for account in accounts if account.fired_ms is not None]
        return max(fired_ms, default=MIN_WATERMARK)

    def _time_now(self) -> int:
        if self._batch:
            return MAX_WATERMARK if self.time.watermark == MAX_WATERMARK else MIN_WATERMARK
        if self._windows.is_event_time:
            return self.time.watermark
        return max(self._before_ms, self.time.now_ms - 1)

    def take(self, batch: Batch) -> None:
        """Collect partials until the epoch's input is complete."""
        started = time.perf_counter_ns()
        columns = batch.columns()
        self.records_in += len(batch)
        rows = PaneRows(self.keying.column_to_group(batch), columns.column(1).to_numpy(), columns.columns[3:])
        if len(rows) and self._windows.last_window(rows.panes.min()) <= self._dead_through:
            too_late = self._windows.last_window(rows.panes) <= self._dead_through
            self._late_records.inc(int(columns.column(2).to_numpy()[too_late].sum()))
            rows = rows.take(np.flatnonzero(~too_late))
        if len(rows):
            self._partials.append(rows)
            self._partial_bytes += rows.nbytes
        if self._partial_bytes > self._partial_bytes_max:
            merged = self._gathered_rows()
            self._partials, self._partial_bytes = [merged], merged.nbytes
            self._partial_bytes_max = max(2 * merged.nbytes, _MERGED_BYTES_MIN)
        self.busy_ns += time.perf_counter_ns() - started

    @property
    def _dead_through(self) -> int:
        """The last window that can no longer change. In processing time and in BATCH nothing is late."""
        is_late_possible = self._windows.is_event_time and not self._batch
        return self._windows.dead_through(self._before_ms if is_late_possible else MIN_WATERMARK)

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        self._started_ns = time.perf_counter_ns()
        now_ms = self._time_now()
        closing = WindowRange(self._windows.fired_through(self._before_ms), self._windows.fired_through(now_ms))
        with self.call.running("state"):
            fresh = self._gathered_rows() if self._partials else None
            rows, changed, late = self._merged(fresh, closing)
        if rows is not None:
            if late is not None:
                late_rows = np.flatnonzero(_of_keys_with(rows, late))
                self._fire(rows.take(late_rows), WindowRange(self._dead_through, closing.after), late[late_rows])
            self._fire(rows, closing, None)
            with self.call.running("state"):
                self._store(rows, changed, now_ms)
        self.busy_ns += time.perf_counter_ns() - self._started_ns
        return reached

    def _gathered_rows(self) -> PaneRows:
        return self._combined(self._partials)[0]

    def _combined(self, pieces: list[PaneRows]) -> tuple[PaneRows, Groups]:
        with self.call.running("aggregate"):  # a strict sum may overflow
            return self._accumulators.combined(PaneRows.concat(pieces))

    def _store(self, rows: PaneRows, changed: Bools, now_ms: int) -> None:
        """Write changed panes that are still needed."""
        needed = np.flatnonzero(changed & (self._windows.expiry_ms(rows.panes) > now_ms))
        if len(needed):
            self._panes.put(rows, needed)
            self._next_end = int(rows.panes[needed].min()) + self._windows.pane_ms

    def _merged(self, fresh: PaneRows | None, closing: WindowRange) -> tuple[PaneRows | None, Bools, Bools | None]:
        """All panes this epoch needs, one row each; masks of the panes that received records, and of those with late
        records (None: no late records)."""
        windows = self._windows
        ending = _NO_TIME
        if closing:
            ending = windows.starts(closing.after + 1), windows.ends(closing.through)
        if fresh is None:
            rows = self._panes.ending(*ending) if closing and not self._panes.is_empty else None
            rows = rows if rows is not None and len(rows) else None
            return rows, np.zeros(0 if rows is None else len(rows), dtype=np.bool_), None
        # An ended window can change only within the allowed lateness.
        changes_last = closing.after if closing.after > self._dead_through else -MAX_WATERMARK
        late = windows.first_window(fresh.panes) <= changes_last
        pieces = [] if self._panes.is_empty else self._stored_panes(fresh, late, ending)
        stored = sum(map(len, pieces))
        if not stored:
            return fresh, np.ones(len(fresh), dtype=np.bool_), late if late.any() else None
        merged, groups = self._combined([*pieces, fresh])
        changed, got_late = np.zeros((2, groups.count), dtype=np.bool_)
        changed[groups.codes[stored:]] = True
        got_late[groups.codes[stored:][late]] = True
        return merged, changed, got_late if late.any() else None

    def _stored_panes(self, fresh: PaneRows, late: Bools, ending: tuple[int, int]) -> list[PaneRows]:
        """The stored panes that end in this time range, and those that received records: all panes of keys with late
        records, only the same panes of other keys."""
        ends = fresh.panes + self._windows.pane_ms
        outside = (ends <= ending[0]) | (ends > ending[1])
        scanned_ms = ending
        if np.count_nonzero(outside) * _ROWS_PER_LOOKUP > self._panes.rows_stored:
            # With this many lookups, a scan of the range of end times is faster.
            scanned_ms = min(ending[0], int(ends.min()) - 1), max(ending[1], int(ends.max()))
            outside = np.zeros(len(fresh), dtype=np.bool_)
        pieces = [self._panes.ending(*scanned_ms)] if scanned_ms != _NO_TIME else []
        if late.any():
            of_late_keys = _of_keys_with(fresh, late)
            distinct = groups_of(fresh.keys.array.filter(pa.array(of_late_keys))).firsts()
            rows = self._panes.of_keys(fresh.keys.take(np.flatnonzero(of_late_keys)[distinct]))
            ends = rows.panes + self._windows.pane_ms
            pieces.append(rows.take(np.flatnonzero((ends <= scanned_ms[0]) | (ends > scanned_ms[1]))))
            outside = outside & ~of_late_keys
        others = np.flatnonzero(outside)
        if len(others):
            pieces.append(self._panes.of_pairs(fresh.keys.take(others), fresh.panes[others]))
        return pieces

    def _fire(self, rows: PaneRows, range_: WindowRange, seeds: Bools | None) -> None:
        fired_pieces = iter(fired_windows(rows, self._windows, range_, self._accumulators, seeds))
        while True:
            with self.call.running("aggregate"):
                fired = next(fired_pieces, None)
                if fired is None:
                    return
                results = self._results(fired)
            self.busy_ns += time.perf_counter_ns() - self._started_ns
            self.emit(results)
            self._started_ns = time.perf_counter_ns()

    def _results(self, fired: FiredWindows) -> Batch:
        starts, ends = self._windows.starts(fired.windows), self._windows.ends(fired.windows)
        columns = self._accumulators.results(fired.parts)
        if self._operation.has_bounds:
            columns = [pa.array(starts), pa.array(ends), *columns]
        if self._operation.has_key:
            columns = [fired.keys, *columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Batch.of_columns(batch, self._type, ends - 1)

    def write_states(self) -> SubtaskAccount:
        by_clock = not self._windows.is_event_time
        account = replace(super().write_states(), pane_ms=self._own_panes, by_clock=by_clock)
        if self.node.queryable is not None:
            key_type = self.node.inputs[0].key_type
            assert key_type is not None
            account = replace(account, queryable={self.node.queryable: queryable_of_panes(self._operation, key_type)})
        if self._windows.is_event_time or self._batch:
            return account
        now_ms = self._time_now()
        account = replace(account, fired_ms=now_ms)
        wake_ms = self._next_firing(now_ms)
        return account if wake_ms is None else account.waking_at(wake_ms)

    def _next_firing(self, now_ms: int) -> int | None:
        """The end of the next processing-time window that has a pane."""
        fired_through = self._windows.fired_through(now_ms)
        # A pane that ends before the next window starts is not needed any more.
        stored = self._panes.earliest_end(self._windows.starts(fired_through + 1))
        ends = [end for end in (stored, self._next_end) if end is not None]
        if not ends:
            return None
        first = self._windows.first_window(min(ends) - self._windows.pane_ms)
        return int(self._windows.ends(max(first, fired_through + 1)))


def _of_keys_with(rows: PaneRows, is_marked: Bools) -> Bools:
    """Mask of the rows with a key that has a marked row."""
    keys = groups_of(rows.keys.array)
    key_is_marked = np.zeros(keys.count, dtype=np.bool_)
    key_is_marked[keys.codes[is_marked]] = True
    of_marked_keys: Bools = key_is_marked[keys.codes]
    return of_marked_keys

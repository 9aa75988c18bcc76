"""Temporal joins by event time: joins every left row with the version of the right table valid at its time.

A left row waits until the watermark reaches its time: then all versions up to it are known. A version is stored by key
and time; of two versions with the same time, the later arrival wins. A version replaced before the watermark is deleted
when its key is next read: only late rows could match it. A late left row is matched with the versions still stored.

`references.time_joins` is the slow reference implementation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.common.types import RowKind
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BooleanType
from millstream.graph.join_nodes import TemporalPairs
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.joins.buffer import RowTable
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.states import StateHandle
from millstream.runtime.operators.operator import OperatorSetting, Origin
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.pairs import Pairs, columns_of_pairs, without_key
from millstream.runtime.tables.row_expiry import milliseconds_of
from millstream.runtime.tables.two_tables import TwoTablesOperator
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import LEFT_TABLE, VERSIONS
from millstream.state.tables.state_table import StateTable

__all__ = ["TemporalPairsOperator"]


@dataclass(frozen=True)
class _Versions:
    """Versions of some keys: their rows, times, and a mask of the deletes."""

    rows: SignedRows
    times: Int64s
    are_deletes: Bools


class TemporalPairsOperator(TwoTablesOperator):
    """Joins rows with versions."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, TemporalPairs)
        self._times = operation.times
        row_type = operation.rows[1]
        self._kind = pa.struct(list(row_type.schema))
        stored_type = RowType.of(["is_gone", *row_type.names], [BooleanType(False), *row_type.types], nullable=False)
        codec = task_codec(TableRowType(stored_type), f"state '{VERSIONS}' of '{self.node.name}'")
        self._stored_kind = codec.arrow_type
        groups = setting.context.max_parallelism
        table = StateTable(VERSIONS, self.edges[1].key_type, groups, codec, sub_type=pa.int64(), evolves=False)
        self._versions = StateHandle(table, self.backend.scope)
        self.backend.keep(VERSIONS, self._versions)
        left_codec = self.codec(0, LEFT_TABLE)
        self._lefts = JoinedRows(
            LEFT_TABLE, self.edges[0].key_type, groups, left_codec, self.backend.scope, None, timed=RowTable
        )
        self.backend.keep(LEFT_TABLE, self._lefts)
        self._before_ms = MIN_WATERMARK

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        self._before_ms = self.event_ms
        self._lefts.move_time(self.event_ms)
        super().open_states(accounts)

    def write_states(self) -> SubtaskAccount:
        self._lefts.move_time(self.event_ms)
        return super().write_states()

    def _gather(self, number: int, origin: Origin, batch: Batch) -> None:
        kinds = batch.columns().schema.get_field_index(KIND_COLUMN)
        if number == 1 and kinds >= 0:
            # The row before an update is an earlier version, and stays valid for its time.
            row_kinds = np.asarray(batch.columns().column(kinds))
            batch = batch.take(np.flatnonzero(row_kinds != RowKind.UPDATE_BEFORE.value))
            self._reject_without_time(batch)
        if len(batch):
            super()._gather(number, origin, batch)

    def _reject_without_time(self, batch: Batch) -> None:
        """Reject deletes that carry only a key, since they have no time."""
        times = batch.columns().column(1 + self._times[1])  # column 0 is the key
        if times.null_count:
            error = ProgramError(
                "the row deletes its key without a time: the rowtime is NULL, so it is unknown which rows still see "
                "the previous version. Use the time of the message as rowtime (METADATA FROM 'timestamp')"
            )
            row = int(np.flatnonzero(np.asarray(times.is_null()))[0])
            raise self.call.failed(error, "join", tuple(batch.slice(row, 1).values()))

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        self.started_ns = time.perf_counter_ns()
        with self.call.running("state"):
            changed = self._store_versions()
        lefts, times = self._due()
        to_read = [rows for rows in (lefts, changed) if rows is not None and len(rows)]
        if to_read:
            with self.call.running("state"):
                versions = self._read(SignedRows.concat_keys(to_read))
            self._emit_pairs(lefts, times, versions)
            with self.call.running("state"):
                self._trim(versions)
        self.busy_ns += time.perf_counter_ns() - self.started_ns
        return reached

    # --- versions -------------------------------------------------------------------------------------------------

    def _store_versions(self) -> SignedRows | None:
        """Store the right side's input; returns its rows."""
        pieces, _ = self.take_rows(1)
        if not pieces:
            return None
        rows = SignedRows.concat(pieces)
        rows = rows.take(np.flatnonzero(~without_key(rows)))
        if len(rows):
            columns = [pa.array(rows.signs < 0), *rows.contents.flatten()]
            values = pa.StructArray.from_arrays(columns, fields=list(self._stored_kind))
            times = milliseconds_of(rows.contents.field(self._times[1]), MIN_WATERMARK)
            self._versions.table.changes.put(rows.keys, values, subs=pa.array(times))
            self._versions.table.settle()
        return rows

    def _read(self, keys: KeyColumn) -> _Versions:
        distinct = np.sort(np.unique(key_numbers([keys.array])[0], return_index=True)[1])
        stored_rows = self._versions.table.view.scan_keys(keys.take(distinct))
        stored = stored_rows.column("value").flatten()
        contents = pa.StructArray.from_arrays(stored[1:], fields=list(self._kind))
        rows = SignedRows.of(KeyColumn(stored_rows.column("hash").to_numpy(), stored_rows.column("key")), contents)
        are_deletes = stored[0].to_numpy(zero_copy_only=False).astype(np.bool_)
        return _Versions(rows, stored_rows.column("sub").to_numpy(), are_deletes)

    def _trim(self, versions: _Versions) -> None:
        """Delete versions replaced by a later version of their key up to the watermark, and a last version that is a
        delete."""
        if not len(versions.rows):
            return
        codes = key_numbers([versions.rows.keys.array])[0]
        order = np.lexsort((versions.times, codes))
        has_next = np.append(codes[order][1:] == codes[order][:-1], False)
        next_ms = np.append(versions.times[order][1:], 0)
        is_past = versions.times[order] <= self.event_ms
        is_over = np.where(has_next, next_ms <= self.event_ms, is_past & versions.are_deletes[order])
        at = order[np.flatnonzero(is_over)]
        if len(at):
            self._versions.table.changes.delete(versions.rows.keys.take(at), subs=pa.array(versions.times[at]))

    # --- rows -----------------------------------------------------------------------------------------------------

    def _due(self) -> tuple[SignedRows, Int64s]:
        """The left rows whose time the watermark has reached; stores the other new rows."""
        pieces, _ = self.take_rows(0)
        rows = SignedRows.concat(pieces) if pieces else self._lefts.no_rows()
        times = milliseconds_of(rows.contents.field(self._times[0]), MIN_WATERMARK)
        later = np.flatnonzero(times > self.event_ms)
        with self.call.running("state"):
            moved = self.event_ms > self._before_ms
            stored = self._lefts.due_through(self.event_ms) if moved else (self._lefts.no_rows(), times[:0])
            self._lefts.add(rows.take(later), self.time.now_ms, times[later])
        due = np.flatnonzero(times <= self.event_ms)
        return SignedRows.concat([stored[0], rows.take(due)]), np.concatenate([stored[1], times[due]])

    def _emit_pairs(self, lefts: SignedRows, times: Int64s, versions: _Versions) -> None:
        """Emit every row with its version."""
        if not len(lefts):
            return
        at = _latest(lefts, times, versions)
        matched = np.flatnonzero(at >= 0)
        matched = matched[~versions.are_deletes[at[matched]]]
        left_rows, right_rows = self.matcher.filtered(lefts, matched, versions.rows, at[matched])
        if len(left_rows):
            pairs = Pairs(lefts, left_rows, versions.rows, right_rows, np.ones(len(left_rows), dtype=np.int64))
            self.emit_rows(columns_of_pairs(pairs, self.schema), stamps=times[left_rows])
        if self.join.kind == "LEFT":
            unmatched = np.setdiff1d(np.arange(len(lefts)), left_rows)
            if len(unmatched):
                empty = versions.rows.take(np.empty(0, dtype=np.int64))
                self.emit_rows(
                    columns_of_pairs(Pairs.unmatched(0, lefts, unmatched, empty), self.schema), stamps=times[unmatched]
                )


def _latest(lefts: SignedRows, times: Int64s, versions: _Versions) -> Int64s:
    """For every left row, the latest version of its key at or before its time; -1 if no such version exists."""
    codes, left_codes = key_numbers([versions.rows.keys.array, lefts.keys.array])
    all_codes, all_times = np.concatenate([codes, left_codes]), np.concatenate([versions.times, times])
    is_left = np.repeat([False, True], [len(codes), len(left_codes)])
    order = np.lexsort((is_left, all_times, all_codes))
    # Versions and rows of a key are adjacent, by time: a row matches the last version before it.
    last = np.maximum.accumulate(np.where(is_left[order], -1, np.arange(len(order))))
    has_one = (last >= 0) & (all_codes[order][last] == all_codes[order])
    result = np.empty(len(order), dtype=np.int64)
    result[order] = np.where(has_one, order[last], -1)
    latest = result[len(codes) :]
    latest[without_key(lefts)] = -1
    return latest

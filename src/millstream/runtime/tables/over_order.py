"""OVER by any order, on tables that grow or change: rows of partitions, and what changes of their results.

All rows of a partition are kept. In an epoch the partitions that got changes are computed as they were and as they are;
a row whose results differ is taken away and given anew, and so is what came and what went. So after every epoch what
was given is what the query says of all rows read so far. In BATCH rows are given when the input has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.types import RowKind
from millstream.graph.over_nodes import OverOrder
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import differing, netted_rows, refuse_removals, signs_of, with_kinds
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.over_calls import functions_of, over_calls
from millstream.runtime.tables.over_frames import ordered
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import ORDERED_ROWS

__all__ = ["OverOrderOperator"]

_GIVEN_ROWS = 65_536
_INSERT, _DELETE = RowKind.INSERT.value, RowKind.DELETE.value


class OverOrderOperator(KeyedOperator):
    """Gives rows with their results, and what changes of these."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, edge, output_type = self.node.operation, self.node.inputs[0], self.node.output_type
        assert isinstance(operation, OverOrder) and output_type is not None
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        self._kind = pa.struct(list(operation.row_type.schema))
        self._calls = over_calls(operation.columns)
        codec = task_codec(TableRowType(operation.row_type), f"state '{ORDERED_ROWS}' of '{self.node.name}'")
        most = setting.context.max_parallelism
        self._rows = JoinedRows(ORDERED_ROWS, edge.key_type, most, codec, self.backend.scope, operation.ttl_ms)
        self.backend.keep(ORDERED_ROWS, self._rows)
        self._come: list[SignedRows] = []
        self._is_batch = setting.facts.batch

    def user_functions(self) -> Iterable[Any]:
        return functions_of(self._operation.columns)

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        self._come = []

    def take(self, batch: Batch) -> None:
        """Keep changes until the epoch's input is in."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        columns, signs = signs_of(batch.columns())
        if not self._operation.is_changing:
            refuse_removals(self.call, batch, signs, "over")
        self._come.append(SignedRows.of_columns(self.keying.column(batch), columns, self._kind, signs))
        self.busy_ns += time.perf_counter_ns() - started

    def advance(self, watermark: int) -> int:
        had_ended = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        started = time.perf_counter_ns()
        if self._come:
            changes, self._come = SignedRows.concat(self._come).netted(), []
            with self.call.running("over"):
                given = self._applied(changes)
            if given is not None:
                self._give(*given)
        if self._is_batch and reached == MAX_WATERMARK and not had_ended:
            with self.call.running("over"):
                rows = self._rows.all()
                everything = self._with_results(rows, self._results(rows), np.arange(len(rows)))
            self._give(everything, np.zeros(len(rows), dtype=np.int64))
        self.busy_ns += time.perf_counter_ns() - started
        return reached

    def _applied(self, changes: SignedRows) -> tuple[pa.RecordBatch, Int64s] | None:
        """What changes of the partitions' rows, with kinds; the store follows."""
        if self._is_batch:
            self._rows.add(changes, self.time.now_ms)
            return None
        before = self._rows.of_keys(changes.keys)
        gone = before.taken_away(changes, "the table")
        added = changes.take(np.flatnonzero(changes.signs > 0))
        kept = np.flatnonzero(~gone)
        after = SignedRows.concat([before.take(kept), added])
        self._rows.remove(before.take(np.flatnonzero(gone)))
        self._rows.add(added, self.time.now_ms)
        was, is_ = self._results(before), self._results(after)
        # A row that stays is the same in all but its results.
        at = pa.array(kept)
        differ = differing([column.take(at) for column in was], [column[: len(kept)] for column in is_], len(kept))
        less = np.concatenate([np.flatnonzero(gone), kept[differ]])
        more = np.concatenate([np.flatnonzero(differ), np.arange(len(kept), len(after))])
        both = [self._with_results(before, was, less), self._with_results(after, is_, more)]
        signs = np.repeat([-1, 1], [len(less), len(more)])
        if not len(signs):
            return None
        changed, signs = netted_rows(pa.Table.from_batches(both).combine_chunks().to_batches()[0], signs)
        order = np.argsort(signs, kind="stable")
        return changed.take(pa.array(order)), np.where(signs > 0, _INSERT, _DELETE)[order]

    def _results(self, rows: SignedRows) -> list[pa.Array]:
        """The results of all calls, row by row as they stand."""
        if not len(rows):
            return [pa.nulls(0, field.type) for field in list(self._schema)[self._kind.num_fields :]]
        partitions = key_numbers([rows.keys.array])[0]
        in_order = ordered(partitions, rows.contents.flatten(), self._operation.order)
        columns = pa.RecordBatch.from_struct_array(rows.contents.take(pa.array(in_order.rows)))
        places = np.empty(len(rows), dtype=np.int64)
        places[in_order.rows] = np.arange(len(rows))
        at = pa.array(places)
        return [call.results(in_order, columns).take(at) for call in self._calls]

    def _with_results(self, rows: SignedRows, results: list[pa.Array], chosen: Int64s) -> pa.RecordBatch:
        at = pa.array(chosen)
        columns = [*rows.contents.take(at).flatten(), *(column.take(at) for column in results)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _give(self, columns: pa.RecordBatch, kinds: Int64s) -> None:
        for start in range(0, columns.num_rows, _GIVEN_ROWS):
            piece = columns.slice(start, _GIVEN_ROWS)
            given = with_kinds(piece, kinds[start : start + _GIVEN_ROWS])
            self.emit(Batch.of_columns(given, self._type, self._times(piece) if self._is_batch else None))

    def _times(self, columns: pa.RecordBatch) -> Int64s | None:
        """The event times of rows that are given in BATCH."""
        if self._operation.rowtime is None:
            return None
        moments = columns.column(self._operation.rowtime)
        times: Int64s = pc.cast(moments, pa.timestamp("ms"), safe=False).view(pa.int64()).to_numpy()
        return times

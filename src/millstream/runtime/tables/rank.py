"""Top-N: of every partition the first rows of an order, kept in step with a table that grows or changes.

Of a table that only grows, just the first rows are kept: what is not among them will never be (most of it does not
come here, see `partial_rank`). Of one that changes all
rows are kept, since the next one moves up when a row goes. In an epoch the stored rows of the partitions that got
changes are ranked as they were and as they are, and the difference is given out.

With the number of a row in what is given, a row that moves is another row: changes are by place. In BATCH rows are
given when the input has ended, in their order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from millstream.common.types import RowKind
from millstream.graph.table_nodes import RankRows
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import given_pieces, netted_rows, refuse_removals, signs_of
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.ranking import ranks_of
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import RANKED_ROWS

__all__ = ["RankOperator"]

_INSERT, _DELETE = RowKind.INSERT.value, RowKind.DELETE.value


class RankOperator(KeyedOperator):
    """Gives the first rows of every partition."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, edge, output_type = self.node.operation, self.node.inputs[0], self.node.output_type
        assert isinstance(operation, RankRows) and output_type is not None
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        self._kind = pa.struct(list(operation.row_type.schema))
        codec = task_codec(TableRowType(operation.row_type), f"state '{RANKED_ROWS}' of '{self.node.name}'")
        self._rows = JoinedRows(
            RANKED_ROWS, edge.key_type, setting.context.max_parallelism, codec, self.backend.scope, operation.ttl_ms
        )
        self.backend.keep(RANKED_ROWS, self._rows)
        self._come: list[SignedRows] = []
        self._is_batch = setting.facts.batch

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        self._come = []

    def take(self, batch: Batch) -> None:
        """Keep changes until the epoch's input is in."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        columns, signs = signs_of(batch.columns())
        if not self._operation.is_changing:
            refuse_removals(self.call, batch, signs, "rank")
        self._come.append(SignedRows.of_columns(self.keying.column(batch), columns, self._kind, signs))
        self.busy_ns += time.perf_counter_ns() - started

    def advance(self, watermark: int) -> int:
        had_ended = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        started = time.perf_counter_ns()
        if self._come:
            changes, self._come = SignedRows.concat(self._come).netted(), []
            with self.call.running("rank"):
                given = self._applied(changes)
            self._give(*given)
        if self._is_batch and reached == MAX_WATERMARK and not had_ended:
            with self.call.running("state"):
                rows = self._rows.all()
            ranks, order = self._ranked(rows)
            first = self._rows_given(rows, ranks, order[self._is_given(ranks)[order]])
            self._give(first, np.full(first.num_rows, _INSERT))
        self.busy_ns += time.perf_counter_ns() - started
        return reached

    def _applied(self, changes: SignedRows) -> tuple[pa.RecordBatch, Int64s]:
        """What is no more among the first rows of the partitions, and what is new, with kinds; the store follows."""
        before = self._rows.of_keys(changes.keys)
        gone = before.taken_away(changes, "the table")
        old = np.flatnonzero(~gone)
        added = changes.take(np.flatnonzero(changes.signs > 0))
        after = SignedRows.concat([before.take(old), added])
        was, ranks = self._ranks(before), self._ranks(after)
        if self._operation.is_changing:
            self._rows.remove(before.take(np.flatnonzero(gone)))
            self._rows.add(added, self.time.now_ms)
        else:  # What is not among the first now will never be.
            is_first = ranks <= self._operation.last
            self._rows.remove(before.take(old[~is_first[: len(old)]]))
            self._rows.add(added.take(np.flatnonzero(is_first[len(old) :])), self.time.now_ms)
        if self._is_batch:
            return pa.RecordBatch.from_pylist([], schema=self._schema), np.empty(0, dtype=np.int64)
        return self._difference(before, was, after, ranks, old)

    def _difference(
        self, before: SignedRows, was: Int64s, after: SignedRows, ranks: Int64s, old: Int64s
    ) -> tuple[pa.RecordBatch, Int64s]:
        """Rows that were given and are not any more, and the other way round. `was` and `ranks`: the numbers of both;
        the first of `after` are the rows `old` of `before`."""
        goes, comes = self._is_given(was), self._is_given(ranks)
        # What stood and stands, in its place if that is told, is no change.
        stays = goes[old] & comes[: len(old)]
        if self._operation.has_number:
            stays &= was[old] == ranks[: len(old)]
        goes[old[stays]] = False
        comes[: len(old)][stays] = False
        left = self._rows_given(before, was, np.flatnonzero(goes))
        new = self._rows_given(after, ranks, np.flatnonzero(comes))
        if not left.num_rows:
            return new, np.full(new.num_rows, _INSERT)
        signs = np.repeat([-1, 1], [left.num_rows, new.num_rows])
        changed, signs = netted_rows(pa.concat_batches([left, new]), signs)
        order = np.argsort(signs, kind="stable")
        return changed.take(pa.array(order)), np.where(signs > 0, _INSERT, _DELETE)[order]

    def _is_given(self, ranks: Int64s) -> Bools:
        return (ranks >= self._operation.first) & (ranks <= self._operation.last)

    def _ranks(self, rows: SignedRows) -> Int64s:
        return self._ranked(rows)[0]

    def _ranked(self, rows: SignedRows) -> tuple[Int64s, Int64s]:
        """The number of every row in its partition, and the rows in their order."""
        operation = self._operation
        partitions = key_numbers([rows.keys.array])[0]
        columns = rows.contents.flatten()
        return ranks_of(operation.kind, partitions, columns, operation.order, latest_first=operation.latest_first)

    def _rows_given(self, rows: SignedRows, ranks: Int64s, chosen: Int64s) -> pa.RecordBatch:
        """Rows as they are given, with their number where it is wanted."""
        columns = rows.contents.take(pa.array(chosen)).flatten()
        if self._operation.has_number:
            columns.append(pa.array(ranks[chosen]))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _give(self, columns: pa.RecordBatch, kinds: Int64s) -> None:
        for piece in given_pieces(columns, kinds, self._type):
            self.emit(piece)

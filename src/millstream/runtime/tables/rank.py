"""Top-N: of every partition the first rows of an order, kept in step with a table that grows or changes.

Of a table that only grows, just the first rows are kept: what is not among them will never be. Of one that changes all
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
from millstream.errors import ProgramError
from millstream.graph.table_nodes import RankRows
from millstream.records.batch import Batch
from millstream.records.columns import stream_schema
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import netted_rows, signs_of, with_kinds
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.ranking import ranks_of
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import RANKED_ROWS

__all__ = ["RankOperator"]

_GIVEN_ROWS = 65_536
_INSERT, _DELETE = RowKind.INSERT.value, RowKind.DELETE.value


class RankOperator(KeyedOperator):
    """Gives the first rows of every partition."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, edge, output_type = self.node.operation, self.node.inputs[0], self.node.output_type
        assert isinstance(operation, RankRows) and output_type is not None
        self._operation, self._type = operation, output_type
        schema = stream_schema(output_type)
        assert schema is not None
        self._schema = schema
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
        if signs is not None and not self._operation.is_changing:
            error = ProgramError("the row is taken away from a table that is said to only grow")
            raise self.call.failed(error, "rank", tuple(batch.slice(int(np.flatnonzero(signs < 0)[0]), 1).values()))
        contents = pa.StructArray.from_arrays(columns.columns[1 : 1 + self._kind.num_fields], fields=list(self._kind))
        self._come.append(SignedRows.of(self.keying.column(batch), contents, signs))
        self.busy_ns += time.perf_counter_ns() - started

    def advance(self, watermark: int) -> int:
        had_ended = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        started = time.perf_counter_ns()
        if self._come:
            changes, self._come = SignedRows.concat(self._come).netted(), []
            with self.call.running("rank"):
                before, after = self._applied(changes)
            if not self._is_batch:
                self._give(*self._difference(before, after))
        if self._is_batch and reached == MAX_WATERMARK and not had_ended:
            with self.call.running("state"):
                rows = self._rows.all()
            first = self._first_rows(rows)
            self._give(first, np.zeros(first.num_rows, dtype=np.int64))
        self.busy_ns += time.perf_counter_ns() - started
        return reached

    def _applied(self, changes: SignedRows) -> tuple[SignedRows, SignedRows]:
        """The rows of the partitions as they were, and as they are; the store follows."""
        before = self._rows.of_keys(changes.keys)
        gone = before.taken_away(changes, "the table")
        kept = before.take(np.flatnonzero(~gone))
        added = changes.take(np.flatnonzero(changes.signs > 0))
        after = SignedRows.concat([kept, added])
        if self._operation.is_changing:
            self._rows.remove(before.take(np.flatnonzero(gone)))
            self._rows.add(added, self.time.now_ms)
            return before, after
        # What is not among the first now will never be.
        ranks = self._ranks(after)[0]
        is_first = ranks <= self._operation.last
        self._rows.remove(kept.take(np.flatnonzero(~is_first[: len(kept)])))
        self._rows.add(added.take(np.flatnonzero(is_first[len(kept) :])), self.time.now_ms)
        return before, after

    def _ranks(self, rows: SignedRows) -> tuple[Int64s, Int64s]:
        operation = self._operation
        partitions = key_numbers([rows.keys.array])[0]
        return ranks_of(
            operation.kind,
            partitions,
            rows.contents.flatten(),
            operation.order,
            latest_first=operation.latest_first,
        )

    def _first_rows(self, rows: SignedRows) -> pa.RecordBatch:
        """The rows that are given, in their order, with their number where it is wanted."""
        ranks, order = self._ranks(rows)
        chosen = order[(ranks[order] >= self._operation.first) & (ranks[order] <= self._operation.last)]
        columns = rows.contents.take(pa.array(chosen)).flatten()
        if self._operation.has_number:
            columns.append(pa.array(ranks[chosen]))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _difference(self, before: SignedRows, after: SignedRows) -> tuple[pa.RecordBatch, Int64s]:
        """What is no more, and what is new, with kinds."""
        was, is_ = self._first_rows(before), self._first_rows(after)
        rows = pa.Table.from_batches([was, is_]).combine_chunks().to_batches()
        signs = np.repeat([-1, 1], [was.num_rows, is_.num_rows])
        if not rows:
            return was, signs
        changed, signs = netted_rows(rows[0], signs)
        order = np.argsort(signs, kind="stable")
        kinds = np.where(signs > 0, _INSERT, _DELETE)[order]
        return changed.take(pa.array(order)), kinds

    def _give(self, columns: pa.RecordBatch, kinds: Int64s) -> None:
        for start in range(0, columns.num_rows, _GIVEN_ROWS):
            piece = columns.slice(start, _GIVEN_ROWS)
            self.emit(Batch.of_columns(with_kinds(piece, kinds[start : start + _GIVEN_ROWS]), self._type))

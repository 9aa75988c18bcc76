"""Top-N: of every partition the first rows of an order, kept in step with a table that grows or changes.

Of a table that only grows, just the first rows are kept: what is not among them will never be (most of it does not
come here, see `partial_rank`). Of one that changes all
rows are kept, since the next one moves up when a row goes. In an epoch the stored rows of the partitions that got
changes are ranked as they were and as they are, and the difference is given out.

With the number of a row in what is given, a row that moves is another row: changes are by place. In BATCH rows are
given when the input has ended, in their order.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.common.types import RowKind
from millstream.graph.table_nodes import RankRows
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import difference
from millstream.runtime.tables.gathering import GatheringOperator
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.ranking import ranks_of
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.table_names import RANKED_ROWS

__all__ = ["RankOperator"]

_INSERT = RowKind.INSERT.value


class RankOperator(GatheringOperator):
    """Gives the first rows of every partition."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge, output_type = setting.node.operation, setting.node.inputs[0], setting.node.output_type
        assert isinstance(operation, RankRows) and output_type is not None
        super().__init__(setting, operation.row_type, None if operation.is_changing else "rank")
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        codec = task_codec(TableRowType(operation.row_type), f"state '{RANKED_ROWS}' of '{self.node.name}'")
        self._rows = JoinedRows(
            RANKED_ROWS, edge.key_type, setting.context.max_parallelism, codec, self.backend.scope, operation.ttl_ms
        )
        self.backend.keep(RANKED_ROWS, self._rows)
        self._is_batch = setting.facts.batch

    def change(self, rows: SignedRows) -> None:
        with self.call.running("rank"):
            changed = self._applied(rows.netted())
        self.give(*changed, self._type)

    def end_input(self) -> None:
        if not self._is_batch:
            return
        with self.call.running("state"):
            rows = self._rows.all()
        ranks, order = self._ranked(rows)
        first = self._rows_given(rows, ranks, order[self._is_given(ranks)[order]])
        self.give(first, np.full(first.num_rows, _INSERT), self._type)

    def _applied(self, changes: SignedRows) -> tuple[pa.RecordBatch, Int64s]:
        """What is no more among the first rows of the partitions, and what is new, with kinds; the store follows."""
        before = self._rows.of_keys(changes.keys)
        gone = before.taken_away(changes, "the table", forgets=self._rows.forgets)
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
        return difference(left, new)

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

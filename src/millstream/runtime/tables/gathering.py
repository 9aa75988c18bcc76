"""Shared by operators over changelogs: gathers an epoch's changes and applies them together.

Column 0 of the input is the key, the others are the row. Changes take effect when the epoch's input is complete, so the
output does not depend on the order in which tasks were read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import TypeInformation
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import change_batches, change_signs, reject_retractions
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.accounts import SubtaskAccount

__all__ = ["GatheringOperator", "rowtimes"]


class GatheringOperator(KeyedOperator):
    """Passes the changes of an epoch to `apply_changes`. `append_only_role`: the role in the error for a delete, if the
    table is declared append-only."""

    def __init__(self, setting: OperatorSetting, row_type: RowType, append_only_role: str | None = None) -> None:
        super().__init__(setting)
        self.row_kind = pa.struct(list(row_type.schema))
        self._append_only_role = append_only_role
        self._epoch_rows: list[SignedRows] = []
        self._started_ns = 0

    def apply_changes(self, rows: SignedRows) -> None:
        """Apply the changes to state, in arrival order, and emit the resulting changes."""
        raise NotImplementedError

    def end_input(self) -> None:
        """Called once, when the input has ended."""

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        self._epoch_rows = []

    def take(self, batch: Batch) -> None:
        """Collect changes until the epoch's input is complete."""
        self._started_ns = time.perf_counter_ns()
        self.records_in += len(batch)
        columns, signs = change_signs(batch.columns())
        if self._append_only_role is not None:
            reject_retractions(self.call, batch, signs, self._append_only_role)
        self._epoch_rows.append(SignedRows.of_columns(self.keying.column(batch), columns, self.row_kind, signs))
        if self.should_apply():
            self._apply_all()
        self.busy_ns += time.perf_counter_ns() - self._started_ns

    def should_apply(self) -> bool:
        """Whether the gathered changes may be applied now, before the epoch's input is complete."""
        return False

    @property
    def gathered_bytes(self) -> int:
        """The size of the gathered changes."""
        return sum(rows.contents.nbytes for rows in self._epoch_rows)

    def advance(self, watermark: int) -> int:
        had_ended = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        self._started_ns = time.perf_counter_ns()
        if self._epoch_rows:
            self._apply_all()
        if reached == MAX_WATERMARK and not had_ended:
            self.end_input()
        self.busy_ns += time.perf_counter_ns() - self._started_ns
        return reached

    def _apply_all(self) -> None:
        rows, self._epoch_rows = SignedRows.concat(self._epoch_rows), []
        self.apply_changes(rows)

    def emit_changes(
        self, columns: pa.RecordBatch, kinds: Int64s, type_: TypeInformation, stamps: Int64s | None = None
    ) -> None:
        """Emit changes in pieces; downstream time is not counted as this operator's."""
        for piece in change_batches(columns, kinds, type_, stamps):
            self.busy_ns += time.perf_counter_ns() - self._started_ns
            self.emit(piece)
            self._started_ns = time.perf_counter_ns()


def rowtimes(columns: pa.RecordBatch, rowtime: int | None) -> Int64s | None:
    """Event times of rows emitted in BATCH; None if no column holds them or a row's is NULL (from an outer join)."""
    if rowtime is None or columns.column(rowtime).null_count:
        return None
    moments = columns.column(rowtime)
    times: Int64s = pc.cast(moments, pa.timestamp("ms"), safe=False).view(pa.int64()).to_numpy()
    return times

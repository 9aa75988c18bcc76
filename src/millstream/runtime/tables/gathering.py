"""What operators over rows that change have in common: an epoch's changes are gathered, and applied together.

Column 0 of the input is the key, the others are the row. Changes that came are nobody's before the epoch's input is
in; what is given out then depends on all of them, not on the order in which tasks were read.
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
    """Hands the changes of an epoch to `change`. `growing_role`: what a row that is taken away is told to have been in,
    if the table is said to only grow."""

    def __init__(self, setting: OperatorSetting, row_type: RowType, growing_role: str | None = None) -> None:
        super().__init__(setting)
        self.row_kind = pa.struct(list(row_type.schema))
        self._growing_role = growing_role
        self._come: list[SignedRows] = []
        self._started_ns = 0

    def change(self, rows: SignedRows) -> None:
        """Let the state follow the changes, in the order they came, and give out what changes by them."""
        raise NotImplementedError

    def end_input(self) -> None:
        """There will be no more changes, ever."""

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        self._come = []

    def take(self, batch: Batch) -> None:
        """Keep changes until the epoch's input is in."""
        self._started_ns = time.perf_counter_ns()
        self.records_in += len(batch)
        columns, signs = change_signs(batch.columns())
        if self._growing_role is not None:
            reject_retractions(self.call, batch, signs, self._growing_role)
        self._come.append(SignedRows.of_columns(self.keying.column(batch), columns, self.row_kind, signs))
        if self.is_enough():
            self._apply_all()
        self.busy_ns += time.perf_counter_ns() - self._started_ns

    def is_enough(self) -> bool:
        """Whether what was gathered may be applied now, before the epoch's input is in."""
        return False

    @property
    def gathered_bytes(self) -> int:
        """How large it is."""
        return sum(rows.contents.nbytes for rows in self._come)

    def advance(self, watermark: int) -> int:
        had_ended = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        self._started_ns = time.perf_counter_ns()
        if self._come:
            self._apply_all()
        if reached == MAX_WATERMARK and not had_ended:
            self.end_input()
        self.busy_ns += time.perf_counter_ns() - self._started_ns
        return reached

    def _apply_all(self) -> None:
        rows, self._come = SignedRows.concat(self._come), []
        self.change(rows)

    def give(
        self, columns: pa.RecordBatch, kinds: Int64s, type_: TypeInformation, stamps: Int64s | None = None
    ) -> None:
        """Hand changes on, a piece at a time; what others do with them is not this operator's time."""
        for piece in change_batches(columns, kinds, type_, stamps):
            self.busy_ns += time.perf_counter_ns() - self._started_ns
            self.emit(piece)
            self._started_ns = time.perf_counter_ns()


def rowtimes(columns: pa.RecordBatch, rowtime: int | None) -> Int64s | None:
    """The event times of rows that are emitted in BATCH; None where no column holds one, or a row has none (of an outer
    join)."""
    if rowtime is None or columns.column(rowtime).null_count:
        return None
    moments = columns.column(rowtime)
    times: Int64s = pc.cast(moments, pa.timestamp("ms"), safe=False).view(pa.int64()).to_numpy()
    return times

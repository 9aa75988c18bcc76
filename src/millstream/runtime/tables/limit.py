"""LIMIT of an append-only table: the first rows that arrive, after the rows that OFFSET skips.

It runs in one task, which counts its input rows. The count is operator state, so a restarted job continues from it and
never repeats a row or exceeds the limit.
"""

from __future__ import annotations

from typing import Any

from millstream.common.typeinfo import Types
from millstream.graph.table_nodes import LimitRows
from millstream.records.batch import Batch
from millstream.runtime.operators.operator import Operator, OperatorSetting

__all__ = ["LimitOperator"]


class _CountState:
    """Describes the state to the store."""

    type_info = Types.LIST(Types.LONG())

    def get_name(self) -> str:
        return "rows"


class _RowCount:
    """The number of input rows, across restarts."""

    def __init__(self) -> None:
        self.rows = 0
        self._saved: Any = None

    def initialize_state(self, context: Any) -> None:
        """Restore the saved count."""
        self._saved = context.get_operator_state_store().get_list_state(_CountState())
        self.rows = sum(self._saved.get())

    def snapshot_state(self, context: Any) -> None:
        """Save the count."""
        self._saved.update([self.rows])


class LimitOperator(Operator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, LimitRows)
        self._first = operation.offset
        self._end = None if operation.count is None else operation.offset + operation.count
        self._count = _RowCount()

    def stateful(self) -> Any:
        return self._count

    def apply(self, batch: Batch) -> Batch | None:
        before = self._count.rows
        self._count.rows += len(batch)
        start = max(self._first - before, 0)
        stop = len(batch) if self._end is None else min(self._end - before, len(batch))
        return batch.slice(start, stop - start) if start < stop else None

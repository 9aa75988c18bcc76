"""Sets the event time of rows from one of their columns."""

from __future__ import annotations

import numpy as np

from millstream.errors import ProgramError
from millstream.graph.join_nodes import StampRows
from millstream.records.batch import Batch
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.row_expiry import milliseconds_of

__all__ = ["StampOperator"]


class StampOperator(Operator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, StampRows)
        self._column = operation.column

    def apply(self, batch: Batch) -> Batch | None:
        rows = batch.columns()
        times = rows.column(self._column)
        if times.null_count:
            error = ProgramError("RowTime field should not be null: the row has no event time. Filter such rows out")
            place = int(np.flatnonzero(np.asarray(times.is_null()))[0])
            raise self.call.failed(error, "time", tuple(batch.slice(place, 1).values()))
        assert batch.type_info is not None
        return Batch.of_columns(rows, batch.type_info, milliseconds_of(times, 0))

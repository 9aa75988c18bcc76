"""Top-N before the exchange, for append-only tables: drops rows that cannot be among the first of their partition.

A row that is not among the first of its partition in one batch is not among the first of all. It is dropped before it
is sent and sorted again. Remaining rows keep their order, which decides ties.

If almost every row remains, the next batches pass unchecked. The operator is stateless.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.plan.operations import PartialRank
from millstream.records.batch import Batch
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.changes import change_signs, reject_retractions
from millstream.runtime.tables.ranking import ranks_of
from millstream.runtime.task.spec import EpochSpec

__all__ = ["PartialRankOperator"]

# Filtering pays if at most this fraction of the rows remains.
_WORTHWHILE = 0.8
_SKIPPED_AFTER_MISS = 7


class PartialRankOperator(Operator):
    """Passes on the first rows of every partition of a batch."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, PartialRank)
        self._rank = operation.rank
        self._batches_to_skip = 0

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._batches_to_skip = 0

    def apply(self, batch: Batch) -> Batch | None:
        rank = self._rank
        columns, signs = change_signs(batch.coded_columns())
        reject_retractions(self.call, batch, signs, "rank")
        if self._batches_to_skip:
            self._batches_to_skip -= 1
            return batch
        with self.call.running("rank"):
            # Column 0 is the partition key.
            needed = {key.column: _plain(columns.column(1 + key.column)) for key in rank.order}
            partitions = key_numbers([_plain(columns.column(0))])[0]
            ranks, _ = ranks_of(rank.kind, partitions, needed, rank.order, latest_first=rank.latest_first)
        retained = np.flatnonzero(ranks <= rank.last)
        if len(retained) > _WORTHWHILE * len(batch):
            self._batches_to_skip = _SKIPPED_AFTER_MISS
        return batch if len(retained) == len(batch) else batch.take(retained)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column

"""What an operator with a time-to-live has emitted for each stored row.

Usually this can be derived from the stored rows and is not written. With 'table.exec.state.ttl' it cannot: a join
partner or an earlier row may have expired since the row was emitted, and the retraction must equal the row that was
emitted. So a value is stored for each row: its match count (joins), its rank (Top-N), or its results (OVER).
Retractions read it here.

An entry has the key and number of its row and expires no sooner. A row without an entry was stored by an older version:
its output is derived from the stored rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.metrics.metricbase import Counter
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.joined_rows import NumberedTable, SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools

__all__ = ["EmittedResults", "expired_retractions"]

_EXPIRED_RETRACTIONS = "numForgottenRowsRetracted"


def expired_retractions(setting: OperatorSetting) -> Counter:
    """The metric that counts deletes of rows that had already expired: nothing is emitted for them."""
    return setting.context.metrics.counter(_EXPIRED_RETRACTIONS)


class EmittedResults(NumberedTable):
    """The entries for the rows of one table in one subtask; they live as long as the rows."""

    def of(self, rows: SignedRows) -> tuple[Bools, pa.Array]:
        """A mask of the rows that have an entry, and the entries."""
        if not len(rows) or self.table.view.is_empty:
            return np.zeros(len(rows), dtype=np.bool_), pa.nulls(0, self.table.layout.value_type)
        lookup = self.table.view.get_pairs(rows.keys, pa.array(rows.numbers))
        assert lookup.values is not None
        return lookup.mask, lookup.values

    def numbers_of(self, rows: SignedRows, absent: Int64s) -> tuple[Bools, Int64s]:
        """A mask of the rows that have an entry, and every row's number: from its entry, or from `absent` if it has
        none."""
        known, values = self.of(rows)
        numbers = absent.copy()
        numbers[known] = values.to_numpy()
        return known, numbers

    def put(
        self, rows: SignedRows, chosen: Bools, values: pa.Array, now_ms: int, expires_ms: Int64s | None = None
    ) -> None:
        """Store the values emitted for the chosen rows. `expires_ms`: the event time at which each entry expires."""
        at = np.flatnonzero(chosen)
        if rows.expires_ms is not None:  # the row may have been stored under a longer time-to-live
            expires_ms = rows.expires_ms[at]
        if len(at):
            self.put_numbered(rows.keys.take(at), rows.numbers[at], values, now_ms, expires_ms)

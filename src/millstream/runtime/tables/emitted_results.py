"""How stored rows stand in what was given: a value beside each row of an operator that forgets by the clock.

What was given of a row mostly follows from what is stored, and is not written down. Where rows are forgotten before
they go ('table.exec.state.ttl') it does not follow: a partner, or a row that stood before this one, was there when the
row was given and is not known any more. Then the row that would be taken away is not the one that was given. So beside
each row stands what was given of it: with how many partners (joins), as which number (Top-N), with which results
(OVER). Whoever takes a row back asks here.

A standing is named as its row is, by key and number, and is forgotten no sooner. A row without one was stored before
standings were: it stands as the stored rows say.
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

_FORGOTTEN_ROWS = "numForgottenRowsRetracted"


def expired_retractions(setting: OperatorSetting) -> Counter:
    """The metric that counts rows that were taken away when they were forgotten already: nothing was given for them."""
    return setting.context.metrics.counter(_FORGOTTEN_ROWS)


class EmittedResults(NumberedTable):
    """Those of the rows of one table, in one subtask, which are kept as long as those are."""

    def of(self, rows: SignedRows) -> tuple[Bools, pa.Array]:
        """Which of these stored rows have a standing, and the standings of those."""
        if not len(rows) or self.table.view.is_empty:
            return np.zeros(len(rows), dtype=np.bool_), pa.nulls(0, self.table.layout.value_type)
        lookup = self.table.view.get_pairs(rows.keys, pa.array(rows.numbers))
        assert lookup.values is not None
        return lookup.mask, lookup.values

    def numbers_of(self, rows: SignedRows, absent: Int64s) -> tuple[Bools, Int64s]:
        """Which rows have a standing, and their numbers; of the others those that `absent` has for them."""
        known, values = self.of(rows)
        numbers = absent.copy()
        numbers[known] = values.to_numpy()
        return known, numbers

    def put(
        self, rows: SignedRows, chosen: Bools, values: pa.Array, now_ms: int, expires_ms: Int64s | None = None
    ) -> None:
        """Say how the chosen rows stand from now on. `expires_ms`: the event time up to which each of them is kept."""
        at = np.flatnonzero(chosen)
        if rows.expires_ms is not None:  # the row may have come when rows were kept for longer
            expires_ms = rows.expires_ms[at]
        if len(at):
            self.put_numbered(rows.keys.take(at), rows.numbers[at], values, now_ms, expires_ms)

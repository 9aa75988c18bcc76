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

from millstream.common.typeinfo import TypeInformation
from millstream.metrics.metricbase import Counter
from millstream.runtime.joins.buffer import RowTable
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import StateTable

__all__ = ["Standings", "forgotten_rows"]

_FORGOTTEN_ROWS = "numForgottenRowsRetracted"


def forgotten_rows(setting: OperatorSetting) -> Counter:
    """The metric that counts rows that were taken away when they were forgotten already: nothing was given for them."""
    return setting.context.metrics.counter(_FORGOTTEN_ROWS)


class Standings(StateHandle):
    """Those of the rows of one table, in one subtask."""

    def __init__(
        self,
        name: str,
        key_type: TypeInformation | None,
        max_parallelism: int,
        codec: StateCodec,
        scope: Scope,
        ttl_ms: int | None,
        *,
        timed: type[RowTable] | None = None,
    ) -> None:
        """`ttl_ms` and `timed`: how long the rows themselves are kept, as `JoinedRows` has it."""
        self._timed = None if timed is None else timed(name, key_type, max_parallelism, codec, evolves=False)
        plain = StateTable(name, key_type, max_parallelism, codec, sub_type=pa.int64(), ttl_ms=ttl_ms, evolves=False)
        super().__init__(plain if self._timed is None else self._timed, scope)
        self._ttl_ms = ttl_ms

    def move_time(self, time_ms: int) -> None:
        """Event time has come so far."""
        if self._timed is not None:
            self._timed.time_ms = time_ms

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
        if not len(at):
            return
        if self._timed is None and self._ttl_ms:
            # The row came no later than now: its standing is kept at least as long.
            expires_ms = np.full(len(at), now_ms + self._ttl_ms, dtype=np.int64)
        due_ms = expires_ms if self._timed is not None else None
        keys, subs = rows.keys.take(at), pa.array(rows.numbers[at])
        self.table.changes.put(keys, values, subs=subs, due_ms=due_ms, expires_ms=expires_ms)

    def remove(self, rows: SignedRows, chosen: Bools) -> None:
        """The chosen rows go, and their standings with them."""
        at = np.flatnonzero(chosen)
        if len(at):
            self.table.changes.delete(rows.keys.take(at), subs=pa.array(rows.numbers[at]))

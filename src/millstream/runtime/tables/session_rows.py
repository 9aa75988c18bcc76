"""Sessions as columns: rows of a key no further apart than a gap, with their accumulators.

A single row is a session; sessions of one key merge if the next starts within the gap after the last time of the
previous. So rows, partial sessions, stored sessions and late rows are merged by the same step: one sort by key and
start, and one running maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.groups import Groups, groups_of
from millstream.aggregation.pane_rows import Accumulators
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn

__all__ = ["SessionRows", "merged_sessions"]


@dataclass(frozen=True)
class SessionRows:
    """Sessions: their keys, first and last times, record counts, and accumulators."""

    keys: KeyColumn
    starts: Int64s
    lasts: Int64s
    records: Int64s
    parts: Parts

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        """The approximate size in memory."""
        return int(self.keys.array.nbytes + 24 * len(self) + sum(part.nbytes for part in self.parts))

    def take(self, rows: Int64s) -> SessionRows:
        """The sessions at these positions."""
        at = pa.array(rows)
        return SessionRows(
            self.keys.take(rows),
            self.starts[rows],
            self.lasts[rows],
            self.records[rows],
            [part.take(at) for part in self.parts],
        )

    @classmethod
    def concat(cls, pieces: Sequence[SessionRows]) -> SessionRows:
        """All sessions, concatenated."""
        if len(pieces) == 1:
            return pieces[0]
        keys = KeyColumn.concat([rows.keys for rows in pieces])
        return cls(
            keys,
            np.concatenate([rows.starts for rows in pieces]),
            np.concatenate([rows.lasts for rows in pieces]),
            np.concatenate([rows.records for rows in pieces]),
            [pa.concat_arrays(columns) for columns in zip(*(rows.parts for rows in pieces), strict=True)],
        )


def merged_sessions(rows: SessionRows, accumulators: Accumulators, gap_ms: int) -> tuple[SessionRows, Groups]:
    """One row for each session, and the session of each input row. Accumulators are combined in row order."""
    codes = groups_of(rows.keys.array).codes
    order = np.lexsort((rows.starts, codes))
    keys, starts = codes[order], rows.starts[order]
    # Running maximum of the last times within each key, computed over ranks prefixed with the key.
    moments, ranks = np.unique(rows.lasts[order], return_inverse=True)
    room = len(moments) + 1
    reached = moments[np.maximum.accumulate(keys * room + ranks) % room]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (starts[1:] > reached[:-1] + gap_ms)
    session = np.empty(len(order), dtype=np.int64)
    session[order] = np.cumsum(begins) - 1
    groups = Groups(session, int(begins.sum()))
    first = order[np.flatnonzero(begins)]
    lasts = np.full(groups.count, np.iinfo(np.int64).min)
    np.maximum.at(lasts, session, rows.lasts)
    records = np.zeros(groups.count, dtype=np.int64)
    np.add.at(records, session, rows.records)
    parts = accumulators.combine(rows.parts, groups)
    return SessionRows(rows.keys.take(first), rows.starts[first], lasts, records, parts), groups

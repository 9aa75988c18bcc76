"""How many rows a key has, at most, without reading any of them.

The rows of a key stand together in every segment, so two searches per segment bound their number. Rows that were
overwritten, deleted or have expired are counted too: the answer is an upper bound, which is what a caller needs
who wants to know whether reading them all is cheap.
"""

from __future__ import annotations

import numpy as np

from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.segments.lookup import Probe, find_runs
from millstream.state.tables.table import TableView

__all__ = ["row_counts"]


def row_counts(view: TableView, keys: KeyColumn) -> Int64s:
    """An upper bound of the number of live rows of every key."""
    counts = np.zeros(len(keys), dtype=np.int64)
    if not len(keys):
        return counts
    probe = Probe.of(keys, view.layout)
    for layer in view.layers:
        span = layer.among(probe.orders)
        at = np.arange(span.start, span.stop)
        for runs in find_runs(layer.segment, probe, at) if at.size else ():
            np.add.at(counts, probe.positions[runs.at], runs.stops - runs.starts)
    return counts

"""One key at a time, from a view that is kept open: what a query server does all day.

The same search as `lookup`, without arrays: the hash by the scalar reference, the chunk by `bisect` over its
fences, the row by one `searchsorted`. Values of plain columns are read from numpy, because Arrow's scalars cost
several times the search. Invariant: `get(key)` is what `TableView.get` finds for a column of that one key.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.state.canonical import canonical_bytes, canonical_hash
from millstream.state.hashing_reference import hash_value
from millstream.state.layout import PUT, TableLayout
from millstream.state.lookup import Layer
from millstream.state.segment import Chunk, Segment

__all__ = ["PointReader"]

_MASK = 2**64 - 1


class PointReader:
    """Reads single keys of a table without subs."""

    def __init__(self, layout: TableLayout, layers: Sequence[Layer], now_ms: int) -> None:
        if layout.sub_type is not None:
            raise ValueError(f"state {layout.state!r} has subs: use get_pairs or scan_keys")
        self._layout = layout
        self._now_ms = now_ms
        self._layers = [(layer.segment, layer.order_start, layer.order_stop) for layer in reversed(layers)]
        self._readers: dict[int, Callable[[int], Any]] = {}

    def get(self, key: Any) -> Any:
        """The value of the key, as Python; None if there is none."""
        layout = self._layout
        if layout.key_type is None:
            hash_bits, wanted = canonical_hash(key), canonical_bytes(key)
        else:
            hash_bits, wanted = hash_value(key, layout.key_type), key
        order = (hash_bits % layout.max_parallelism) << 48 | (hash_bits & _MASK) >> 16
        needle = np.uint64(order)
        for segment, start, stop in self._layers:
            if start <= order < stop:
                number = bisect_right(segment.fence_list, order) - 1
                if number >= 0:
                    chunk = segment.chunk(number)
                    row = int(chunk.orders.searchsorted(needle))
                    while row < chunk.rows and chunk.orders[row] == needle:
                        if self._is_key(chunk, row, wanted):
                            return self._value(chunk, row)
                        row += 1
        return None

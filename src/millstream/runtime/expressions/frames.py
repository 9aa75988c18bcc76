"""The values of slots for some rows: all rows of a batch, or those of a frame above that reached a block.

A slot that a frame has not filled is taken from the frame above, only for the frame's rows, and only when it is asked
for: columns that no surviving row needs are never touched. Text may stand in a slot as a dictionary; `plain` gives it
as the kernels take it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.runtime.expressions.kernel import SessionFacts, Value

__all__ = ["DistinctResults", "Frame", "Int64s"]

Int64s = npt.NDArray[np.int64]
"""Positions of rows."""


DistinctResults = dict[int, Any]
"""What functions gave for the dictionaries of the batch before, by slot (`by_distinct.py`)."""


class Frame:
    """Slots of `rows` rows. `selection`: the rows of the frame above that these are."""

    def __init__(
        self,
        rows: int,
        session: SessionFacts,
        above: Frame | None = None,
        selection: Int64s | None = None,
        results: DistinctResults | None = None,
    ) -> None:
        self.rows = rows
        self.session = session
        self.above = above
        self.selection = selection
        self.results = results
        self.values: dict[int, Value] = {}
        self.dictionaries: dict[int, Any] = {}  # of slots that were looked at for it; None: does not pay
        self._decoded: dict[int, pa.Array] = {}
        self._indices: pa.Array | None = None

    def selected(self, rows: Int64s) -> Frame:
        """A frame of some of these rows."""
        return Frame(len(rows), self.session, self, rows, self.results)

    def value(self, slot: int) -> Value:
        """What stands in a slot: an array, a dictionary array, or one value for all rows."""
        value = self.values.get(slot)
        if value is None:
            if self.above is None:
                raise LookupError(f"slot {slot} is not filled")
            value = self.above.value(slot)
            if not isinstance(value, pa.Scalar):
                value = value.take(self._taken_rows())
            self.values[slot] = value
        return value

    def plain(self, slot: int) -> Value:
        """The same, with dictionaries spelt out."""
        value = self.value(slot)
        if not isinstance(value, pa.DictionaryArray):
            return value
        if slot not in self._decoded:
            self._decoded[slot] = value.dictionary_decode()
        return self._decoded[slot]

    def _taken_rows(self) -> pa.Array:
        if self._indices is None:
            self._indices = pa.array(self.selection)
        return self._indices

    def origin(self, row: int) -> int:
        """The row of the batch that a row of this frame is."""
        frame: Frame | None = self
        while frame is not None and frame.selection is not None:
            row = int(frame.selection[row])
            frame = frame.above
        return row

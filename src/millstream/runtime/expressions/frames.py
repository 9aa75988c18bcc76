"""A frame holds the values of slots for some rows: all rows of a batch, or the rows of its parent that reached a block.

A slot that a frame has not filled is taken from its parent on first use, only for the frame's rows, so columns that no
surviving row needs are never copied. Strings in a slot may be dictionary-encoded; `decoded` returns them as kernels
expect.
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
"""Results of functions for the dictionaries of the previous batch, by slot (`dictionary_evaluation.py`)."""


class Frame:
    """The slot values of `rows` rows. `selection`: the positions of these rows in the parent frame."""

    def __init__(
        self,
        rows: int,
        session: SessionFacts,
        parent: Frame | None = None,
        selection: Int64s | None = None,
        results: DistinctResults | None = None,
    ) -> None:
        self.rows = rows
        self.session = session
        self.parent = parent
        self.selection = selection
        self.results = results
        self.values: dict[int, Value] = {}
        self.dictionaries: dict[int, Any] = {}  # by slot; None: encoding does not pay off
        self._decoded: dict[int, pa.Array] = {}
        self._indices: pa.Array | None = None

    def selected(self, rows: Int64s) -> Frame:
        """A frame of some of these rows."""
        return Frame(len(rows), self.session, self, rows, self.results)

    def value(self, slot: int) -> Value:
        """The value of a slot: an array, a dictionary array, or a scalar for all rows."""
        value = self.values.get(slot)
        if value is None:
            if self.parent is None:
                raise LookupError(f"slot {slot} is not filled")
            value = self.parent.value(slot)
            if not isinstance(value, pa.Scalar):
                value = value.take(self._selected_indices())
            self.values[slot] = value
        return value

    def decoded(self, slot: int) -> Value:
        """The value of a slot, with dictionaries decoded."""
        value = self.value(slot)
        if not isinstance(value, pa.DictionaryArray):
            return value
        if slot not in self._decoded:
            self._decoded[slot] = value.dictionary_decode()
        return self._decoded[slot]

    def _selected_indices(self) -> pa.Array:
        if self._indices is None:
            self._indices = pa.array(self.selection)
        return self._indices

    def origin(self, row: int) -> int:
        """The row number in the batch for a row of this frame."""
        frame: Frame | None = self
        while frame is not None and frame.selection is not None:
            row = int(frame.selection[row])
            frame = frame.parent
        return row

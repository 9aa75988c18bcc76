"""Aggregate arguments that are computed: a row of several columns, and the mask of a FILTER."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

__all__ = ["Passes", "RowOfArguments", "RowOfColumns"]


@dataclass(frozen=True)
class RowOfColumns:
    """Columns of a batch as one column of rows, for COUNT(a, b): NULL where any column is. `mask` is a BOOLEAN column:
    where it is not TRUE, the row is NULL.

    >>> batch = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    >>> RowOfColumns((0, 1))(batch).to_pylist()
    [{'f0': 1, 'f1': 'x'}, None]
    """

    columns: tuple[int, ...]
    mask: int | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        fields = [batch.column(at) for at in self.columns]
        is_absent = np.zeros(batch.num_rows, dtype=np.bool_)
        for field in fields:
            if field.null_count:
                is_absent |= np.asarray(field.is_null())
        if self.mask is not None:
            is_absent |= ~np.asarray(batch.column(self.mask).fill_null(False))
        names = [f"f{number}" for number in range(len(fields))]
        return pa.StructArray.from_arrays(fields, names=names, mask=pa.array(is_absent))


@dataclass(frozen=True)
class RowOfArguments:
    """The arguments of a user-defined aggregate, as one column of rows; NULL only where `mask` is not TRUE. Without
    arguments it is one dummy column.

    >>> RowOfArguments((0,), 1)(pa.record_batch({"a": [1, None, 3], "b": [True, True, None]})).to_pylist()
    [{'f0': 1}, {'f0': None}, None]
    """

    columns: tuple[int, ...]
    mask: int | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        fields = [batch.column(at) for at in self.columns] or [pa.nulls(batch.num_rows, pa.bool_())]
        is_absent = None
        if self.mask is not None:
            is_absent = pa.array(~np.asarray(batch.column(self.mask).fill_null(False)))
        return pa.StructArray.from_arrays(fields, names=[f"f{n}" for n in range(len(fields))], mask=is_absent)


@dataclass(frozen=True)
class Passes:
    """Mask of the rows that pass a FILTER: where the BOOLEAN column `mask` is TRUE; all rows without a FILTER.

    >>> Passes(0)(pa.record_batch({"a": [True, None]})).to_pylist()
    [True, False]
    """

    mask: int | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        if self.mask is None:
            return pa.array(np.ones(batch.num_rows, dtype=np.bool_))
        return batch.column(self.mask).fill_null(False)

"""What an aggregate of several columns looks at: a row of them, which is NULL where any of them is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

__all__ = ["RowOfColumns"]


@dataclass(frozen=True)
class RowOfColumns:
    """Columns of a batch as one column of rows, for COUNT(a, b). `mask` is a column of BOOLEAN: where it is not TRUE,
    there is no row.

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

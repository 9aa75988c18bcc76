"""A batch: records of one stream, as Python values, as Arrow columns, or both.

Operators pass batches to one another inside a task. The producer of a batch determines its form: a per-record function
produces values, a columnar function or an exchange produces columns. The other form is computed once, on first use. A
typed stream can always be converted to columns; an untyped one never can.

The number of records is not a measure of memory: collections of many records (an epoch, a visit, a block) are bounded
by bytes, and use the batch's estimate. It is exact for columns; for untyped values it is based on a sample of a few
values and a few elements of each, at negligible cost.

Repetitive strings may be dictionary-encoded in columns, as read from a file or returned by a function
(`of_coded_columns`). Only callers of `coded_columns` see this encoding; for others the columns are decoded once, on
first use.

Invariant: values and columns, if both exist, are equivalent. A typed batch of values is converted (and so checked
against its type) when it is created, and its values are retained only if a round trip through Arrow would return them
unchanged, so the input of a downstream function never depends on whether it crossed an exchange. Batches are created
only in tasks, so pickles in columns are opened; readers of a store do not create batches.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.records.columns import arrow_type, encode_record_batch, from_record_batch
from millstream.records.unpickling import unpickled

__all__ = ["Batch", "Timestamps", "alike", "estimated_bytes", "is_typed", "values_bytes"]

_SAMPLED_VALUES = 16
_SAMPLED_ELEMENTS = 8
_DEPTH_MAX = 4


def values_bytes(values: Sequence[Any]) -> int:
    """The estimated size of all `values`, from an even sample.

    >>> values_bytes([b"x" * 1000] * 100) >= 100_000
    True
    """
    if not values:
        return 0
    sample = values[:: -(-len(values) // _SAMPLED_VALUES)]
    return sum(map(estimated_bytes, sample)) * len(values) // len(sample)


def estimated_bytes(value: Any, depth: int = 0) -> int:
    """The estimated size of a value and its contents: of long collections by their first elements, to a limited
    depth."""
    size = sys.getsizeof(value)
    if isinstance(value, (str, bytes, bytearray, memoryview, int, float, bool, type(None))) or depth == _DEPTH_MAX:
        return size
    sample: Any = None
    if isinstance(value, Mapping):
        sample, length = islice(value.items(), _SAMPLED_ELEMENTS), len(value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        sample, length = islice(value, _SAMPLED_ELEMENTS), len(value)
    elif hasattr(value, "__dict__"):
        sample, length = vars(value).values(), len(vars(value))
    parts = [estimated_bytes(part, depth + 1) for part in sample] if sample is not None else []
    return size + (sum(parts) * length // len(parts) if parts else 0)


Timestamps = npt.NDArray[np.int64]


def is_typed(type_info: TypeInformation | None) -> bool:
    """Whether records of this type are exchanged as Arrow columns (otherwise as pickled values)."""
    return type_info is not None and arrow_type(type_info) is not None


class Batch:
    """Records of one stream, in order, with their event timestamps, if they have any.

    >>> from millstream.common.typeinfo import Types
    >>> batch = Batch.of_values([1, 2], Types.LONG())
    >>> batch.columns().num_rows, batch.values()
    (2, [1, 2])
    """

    __slots__ = ("_columns", "_is_coded", "_values", "length", "timestamps", "type_info")

    def __init__(
        self,
        type_info: TypeInformation | None,
        length: int,
        values: list[Any] | None,
        columns: pa.RecordBatch | None,
        timestamps: Timestamps | None,
        is_coded: bool = False,
    ) -> None:
        self.type_info = type_info
        self._is_coded = is_coded
        self.length = length
        self._values = values
        self._columns = columns
        self.timestamps = timestamps

    @classmethod
    def of_values(
        cls, values: list[Any], type_info: TypeInformation | None, timestamps: Timestamps | None = None
    ) -> Batch:
        """A batch of Python values. Typed values are checked now, so that the error names their producer."""
        if type_info is None or not is_typed(type_info):
            return cls(type_info, len(values), values, None, timestamps)
        columns, is_lossless = encode_record_batch(values, type_info)
        return cls(type_info, len(values), values if is_lossless else None, columns, timestamps)

    @classmethod
    def of_columns(
        cls, columns: pa.RecordBatch, type_info: TypeInformation, timestamps: Timestamps | None = None
    ) -> Batch:
        """A batch of Arrow columns with the layout of `stream_schema(type_info)`."""
        return cls(type_info, columns.num_rows, None, columns, timestamps)

    @classmethod
    def of_coded_columns(
        cls, columns: pa.RecordBatch, type_info: TypeInformation, timestamps: Timestamps | None = None
    ) -> Batch:
        """Like `of_columns`; string columns may be dictionary-encoded."""
        is_coded = any(isinstance(each, pa.DictionaryType) for each in columns.schema.types)
        return cls(type_info, columns.num_rows, None, columns, timestamps, is_coded)

    @property
    def typed(self) -> bool:
        return self._columns is not None

    @property
    def nbytes(self) -> int:
        """The size of its records: exact for columns, estimated for untyped values."""
        if self._columns is not None:
            return int(self._columns.nbytes)
        assert self._values is not None
        return values_bytes(self._values)

    def values(self) -> list[Any]:
        """The records as Python values. Callers must not change the list."""
        if self._values is None:
            assert self._columns is not None and self.type_info is not None
            self._values = from_record_batch(self.columns(), self.type_info, unpickled)
        return self._values

    def columns(self) -> pa.RecordBatch:
        """The records as Arrow columns; only typed batches have them."""
        assert self._columns is not None, "an untyped batch has no columns"
        if self._is_coded:
            self._columns, self._is_coded = _decoded(self._columns), False
        return self._columns

    def coded_columns(self) -> pa.RecordBatch:
        """As `columns`; string columns may be dictionary-encoded."""
        assert self._columns is not None, "an untyped batch has no columns"
        return self._columns

    def slice(self, start: int, length: int) -> Batch:
        """The records start, start+1, …; shares memory with this batch."""
        return Batch(
            self.type_info,
            length,
            None if self._values is None else self._values[start : start + length],
            None if self._columns is None else self._columns.slice(start, length),
            None if self.timestamps is None else self.timestamps[start : start + length],
            self._is_coded,
        )

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        """The records at `indices`, in that order. Typed batches are taken column by column."""
        timestamps = None if self.timestamps is None else self.timestamps[indices]
        if self._columns is not None:
            columns = self._columns.take(pa.array(indices))
            return Batch(self.type_info, len(indices), None, columns, timestamps, self._is_coded)
        assert self._values is not None
        values = self._values
        return Batch(self.type_info, len(indices), [values[i] for i in indices.tolist()], None, timestamps)

    @classmethod
    def concat(cls, batches: Sequence[Batch]) -> Batch:
        """The concatenated records of batches that are `alike`."""
        if len(batches) == 1:
            return batches[0]
        first, length = batches[0], sum(map(len, batches))
        stamps = None if first.timestamps is None else np.concatenate([batch.timestamps for batch in batches])
        if first._columns is not None:
            columns = pa.concat_batches([batch.columns() for batch in batches])
            return cls(first.type_info, length, None, columns, stamps)
        return cls(first.type_info, length, [value for batch in batches for value in batch.values()], None, stamps)

    def __len__(self) -> int:
        return self.length


def _decoded(columns: pa.RecordBatch) -> pa.RecordBatch:
    """The columns with dictionaries decoded."""
    arrays = [
        column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column for column in columns.columns
    ]
    fields = [field.with_type(array.type) for field, array in zip(columns.schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def alike(a: Batch, b: Batch) -> bool:
    """Whether two batches have the same layout: both typed or not, the same columns, both with or without
    timestamps."""
    if (a.timestamps is None) != (b.timestamps is None) or a.typed != b.typed:
        return False
    return not a.typed or a.columns().schema.equals(b.columns().schema)

"""Converts pandas Series to Arrow's IPC stream and back, as in PyFlink's workers, for programs that call it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from millstream.expressions.nested_types import RowType
from millstream.pyflink_names import add_pyflink_names
from millstream.table.utils import arrow_to_pandas, pandas_to_arrow

__all__ = ["ArrowSerializer"]


class ArrowSerializer:
    """Writes and reads batches of pandas Series."""

    def __init__(self, schema: pa.Schema, row_type: RowType, timezone: Any) -> None:
        self._schema = schema
        self._types = row_type.types
        self._timezone = timezone

    def serialize(self, iterable: Iterable[Any], stream: Any) -> None:
        """Writes batches: each is a list of Series, one per column."""
        with pa.ipc.new_stream(stream, self._schema) as writer:
            for series in iterable:
                writer.write_batch(pandas_to_arrow(self._schema, self._timezone, self._types, series))

    def deserialize(self, stream: Any) -> Iterator[list[Any]]:
        """Reads batches."""
        with pa.ipc.open_stream(stream) as reader:
            for batch in reader:
                yield arrow_to_pandas(self._timezone, self._types, [batch])

    def load_from_iterator(self, iter: Iterator[bytes]) -> Iterator[list[Any]]:
        """Reads batches from the parts of a stream."""
        yield from self.deserialize(pa.BufferReader(b"".join(iter)))


add_pyflink_names(globals())

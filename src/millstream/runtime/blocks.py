"""A block: records packed into bytes to cross an exchange, with all that is needed to unpack them.

Typed records are one Arrow IPC stream (it carries its own schema; several batches may follow one another);
untyped records are one pickle of a list. The first byte says which. Timestamps travel along, as a hidden
column or beside the list. Decoding a typed block copies nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.records.batch import Batch

__all__ = ["TIMESTAMP_COLUMN", "decode_block", "encode_block"]

TIMESTAMP_COLUMN = "__timestamp"
_ARROW = b"A"
_PICKLE = b"P"
_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)


def encode_block(batches: Sequence[Batch]) -> pa.Buffer:
    """Pack batches that are alike (same type, same columns, all with or all without timestamps) into one block."""
    sink = pa.BufferOutputStream()
    if batches[0].typed:
        sink.write(_ARROW)
        columns = [_with_timestamps(batch) for batch in batches]
        with pa.ipc.new_stream(sink, columns[0].schema, options=_OPTIONS) as writer:
            for batch in columns:
                writer.write_batch(batch)
    else:
        sink.write(_PICKLE)
        values = [value for batch in batches for value in batch.values()]
        stamps = None if batches[0].timestamps is None else np.concatenate([batch.timestamps for batch in batches])
        sink.write(pickle.dumps((values, stamps), protocol=5))
    return sink.getvalue()


def decode_block(payload: pa.Buffer, type_info: TypeInformation | None) -> Iterator[Batch]:
    """The batches of a block, in order."""
    kind, body = payload[0:1].to_pybytes(), payload.slice(1)
    if kind == _PICKLE:
        # The bytes were made by our own sender and came through Spark's authenticated shuffle.
        values, stamps = pickle.loads(body)
        yield Batch(type_info, len(values), values, None, stamps)
        return
    assert type_info is not None
    with pa.ipc.open_stream(body) as reader:
        for columns in reader:
            yield _without_timestamps(columns, type_info)


def _with_timestamps(batch: Batch) -> pa.RecordBatch:
    columns = batch.columns()
    if batch.timestamps is None:
        return columns
    return columns.append_column(TIMESTAMP_COLUMN, pa.array(batch.timestamps))


def _without_timestamps(columns: pa.RecordBatch, type_info: TypeInformation) -> Batch:
    position = columns.schema.get_field_index(TIMESTAMP_COLUMN)
    if position < 0:
        return Batch.of_columns(columns, type_info)
    stamps = columns.column(position).to_numpy()
    return Batch.of_columns(columns.remove_column(position), type_info, stamps)

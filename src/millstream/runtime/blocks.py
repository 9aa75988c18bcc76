"""A block: records packed into bytes to cross an exchange, with all that is needed to unpack them.

Typed records are one Arrow IPC stream (it carries its own schema; several batches may follow one another);
untyped records are one pickle of a list. The first byte says which. Timestamps travel along, as a hidden
column or beside the list. Decoding a typed block copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.records.batch import Batch, alike
from millstream.records.block_form import PICKLE, TIMESTAMP_COLUMN, TYPED
from millstream.records.pickling import pickled
from millstream.records.unpickling import unpickled

__all__ = ["BlockPacker", "decode_block", "encode_block"]

_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)


def encode_block(batches: Sequence[Batch]) -> pa.Buffer:
    """Pack batches that are alike (same type, same columns, all with or all without timestamps) into one block."""
    sink = pa.BufferOutputStream()
    if batches[0].typed:
        sink.write(TYPED)
        columns = [_with_timestamps(batch) for batch in batches]
        with pa.ipc.new_stream(sink, columns[0].schema, options=_OPTIONS) as writer:
            for batch in columns:
                writer.write_batch(batch)
    else:
        sink.write(PICKLE)
        values = [value for batch in batches for value in batch.values()]
        stamps = None if batches[0].timestamps is None else np.concatenate([batch.timestamps for batch in batches])
        sink.write(pickled((values, stamps)))
    return sink.getvalue()


class BlockPacker:
    """Gathers batches into blocks: small ones wait for one another up to a size, so that a block is worth its header.

    The size of untyped records is not known before they are pickled, so their number may be bounded lower.
    """

    __slots__ = ("_batches", "_bytes", "_bytes_max", "_records", "_records_max", "_untyped_max")

    def __init__(self, bytes_max: int, records_max: int, untyped_max: int) -> None:
        self._bytes_max, self._records_max, self._untyped_max = bytes_max, records_max, untyped_max
        self._forget()

    def _forget(self) -> None:
        self._batches: list[Batch] = []
        self._bytes = self._records = 0

    def add(self, batch: Batch) -> Iterator[tuple[pa.Buffer, int]]:
        """Take a batch; gives the blocks that are full, each with the number of its records."""
        if self._batches and not alike(self._batches[-1], batch):
            yield from self.rest()
        self._batches.append(batch)
        self._records += len(batch)
        if batch.typed:
            self._bytes += batch.columns().nbytes
        records_max = self._records_max if batch.typed else self._untyped_max
        if self._records >= records_max or self._bytes >= self._bytes_max:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[pa.Buffer, int]]:
        """What waits, as a block, if anything does."""
        if self._batches:
            block = encode_block(self._batches), self._records
            self._forget()
            yield block


def decode_block(payload: pa.Buffer, type_info: TypeInformation | None) -> Iterator[Batch]:
    """The batches of a block, in order."""
    kind, body = payload[0:1].to_pybytes(), payload.slice(1)
    if kind == PICKLE:
        # The bytes were made by our own sender and came through Spark's authenticated shuffle, or from the job's store.
        values, stamps = unpickled(body)
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

"""A block: records packed into bytes to cross an exchange, with all that is needed to unpack them.

Typed records are one Arrow IPC stream (it carries its own schema; several batches may follow one another);
untyped records are one pickle of a list. The first byte says which. Timestamps travel along, as a hidden
column or beside the list. Decoding a typed block copies nothing.

A block that is stored begins with that byte. Before one that crosses an exchange stand seven zeros more, and it is as
long as a multiple of eight: so its numbers lie where a processor reads them quickest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.records.batch import Batch, alike
from millstream.records.block_form import PICKLE, TIMESTAMP_COLUMN, TYPED, filled_up
from millstream.records.pickling import pickled
from millstream.records.unpickling import unpickled

__all__ = ["ALIGNED", "STORED", "BlockPacker", "decode_block", "encode_block"]

STORED, ALIGNED = b"", bytes(7)
"""What stands before a block that is stored, and before one that crosses an exchange."""

_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)
# Batches of fewer records, on average, share one when they share a block.
_SMALL_RECORDS = 4_096


def encode_block(batches: Sequence[Batch], lead: bytes = STORED) -> pa.Buffer:
    """Pack batches that are alike (same type, same columns, all with or all without timestamps) into one block."""
    if batches[0].typed:
        columns = _joined([_with_timestamps(batch) for batch in batches])
        # Measured first, then written in place: a stream that grows copies what it has again and again.
        measured = pa.MockOutputStream()
        _write_columns(measured, lead, columns)
        block = pa.allocate_buffer(measured.size())
        _write_columns(pa.FixedSizeBufferWriter(block), lead, columns)
        return block
    values = [value for batch in batches for value in batch.values()]
    stamps = None if batches[0].timestamps is None else np.concatenate([batch.timestamps for batch in batches])
    body = lead + PICKLE + pickled((values, stamps))
    return pa.py_buffer(filled_up(body) if lead else body)


def _joined(columns: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch of many small ones. Dealt out to many tasks, and again to many, a batch is crumbs, and each costs
    everybody on its way as much as a large one."""
    if len(columns) == 1 or sum(batch.num_rows for batch in columns) >= _SMALL_RECORDS * len(columns):
        return columns
    return [pa.concat_batches(columns)]


def _write_columns(sink: pa.NativeFile, lead: bytes, columns: Sequence[pa.RecordBatch]) -> None:
    sink.write(lead + TYPED)
    with pa.ipc.new_stream(sink, columns[0].schema, options=_OPTIONS) as writer:
        for batch in columns:
            writer.write_batch(batch)


class BlockPacker:
    """Gathers batches into blocks: small ones wait for one another up to a size, so that a block is worth its header.

    The size of untyped records is not known before they are pickled, so their number may be bounded lower.
    """

    __slots__ = ("_batches", "_bytes", "_bytes_max", "_lead", "_records", "_records_max", "_untyped_max")

    def __init__(self, bytes_max: int, records_max: int, untyped_max: int, lead: bytes = STORED) -> None:
        self._lead = lead
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
            block = encode_block(self._batches, self._lead), self._records
            self._forget()
            yield block


def decode_block(payload: pa.Buffer, type_info: TypeInformation | None) -> Iterator[Batch]:
    """The batches of a block, in order."""
    begin = 0 if payload[0] else len(ALIGNED)
    kind, body = payload[begin : begin + 1].to_pybytes(), payload.slice(begin + 1)
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

"""A block: records packed into bytes to cross an exchange, with all that is needed to unpack them.

Typed records are one Arrow IPC stream (it carries its own schema; several batches may follow one another);
untyped records are one pickle of a list. The first byte says which. Timestamps travel along, as a hidden
column or beside the list. Decoding a typed block copies nothing.

A block that is stored begins with that byte. Before one that crosses an exchange stand seven zeros more, and it is as
long as a multiple of eight: so its numbers lie where a processor reads them quickest.

Invariant: a block is not much larger than asked for, unless a single record is; one that no block can carry is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.records.batch import Batch, alike
from millstream.records.columns import PICKLE, TIMESTAMP_COLUMN, TYPED, filled_up
from millstream.records.pickling import pickled
from millstream.records.unpickling import unpickled

__all__ = [
    "ALIGNED",
    "BLOCK_BYTES_MAX",
    "STORED",
    "BlockPacker",
    "RecordTooLargeError",
    "decode_block",
    "encode_block",
]

STORED, ALIGNED = b"", bytes(7)
"""What stands before a block that is stored, and before one that crosses an exchange."""

BLOCK_BYTES_MAX = 1 << 30
"""No block is larger. A row of Spark's shuffle ends at 2 GiB."""

_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)
# Batches of fewer records, on average, share one when they share a block.
_SMALL_RECORDS = 4_096


class RecordTooLargeError(ProgramError):
    """A record is larger than a block can be."""


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

    A batch that is larger than a block is cut. Of untyped records the size is only known when they are pickled: it is
    told by the last block, at first by some of them, and a block that came out too large is made anew in halves.
    """

    __slots__ = (
        "_batches",
        "_bytes",
        "_bytes_max",
        "_lead",
        "_record_bytes",
        "_records",
        "_records_max",
        "_untyped_max",
    )

    def __init__(self, bytes_max: int, records_max: int, untyped_max: int, lead: bytes = STORED) -> None:
        self._lead = lead
        self._bytes_max, self._records_max, self._untyped_max = bytes_max, records_max, untyped_max
        self._record_bytes = 0  # of an untyped record, by the last block
        self._forget()

    def _forget(self) -> None:
        self._batches: list[Batch] = []
        self._bytes = self._records = 0

    def add(self, batch: Batch) -> Iterator[tuple[pa.Buffer, int]]:
        """Take a batch; gives the blocks that are full, each with the number of its records."""
        if self._batches and not alike(self._batches[-1], batch):
            yield from self.rest()
        size = batch.nbytes if batch.typed or not self._record_bytes else len(batch) * self._record_bytes
        if size > 2 * self._bytes_max and len(batch) > 1:
            for half in _halves(batch):
                yield from self.add(half)
            return
        self._batches.append(batch)
        self._records += len(batch)
        self._bytes += size
        records_max = self._records_max if batch.typed else self._untyped_max
        if self._records >= records_max or self._bytes >= self._bytes_max:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[pa.Buffer, int]]:
        """What waits, as a block, if anything does."""
        if self._batches:
            batches = self._batches
            self._forget()
            yield from self._blocks(batches)

    def _blocks(self, batches: list[Batch]) -> Iterator[tuple[pa.Buffer, int]]:
        block, records = encode_block(batches, self._lead), sum(map(len, batches))
        if not batches[0].typed:
            self._record_bytes = block.size // max(records, 1)
            if block.size > 4 * self._bytes_max and records > 1:
                for half in _halves(Batch.concat(batches)):
                    yield from self._blocks([half])
                return
        if block.size > BLOCK_BYTES_MAX:
            raise RecordTooLargeError(
                f"a record takes {block.size:,} bytes, and at most {BLOCK_BYTES_MAX:,} can go to another task. "
                "Write what is so large to a file and send its name, or cut it into several records"
            )
        yield block, records


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch) // 2
    return batch.slice(0, middle), batch.slice(middle, len(batch) - middle)


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

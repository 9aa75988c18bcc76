"""A block: records packed into bytes to cross an exchange, with all that is needed to unpack them.

Typed records are one Arrow IPC stream (it carries its own schema; several batches may follow one another);
untyped records are one pickle of a list. The first byte says which. Timestamps travel along, as a hidden
column or beside the list. Decoding a typed block copies nothing.

Invariant: a block is not much larger than asked for, unless a single record is; one that no block can carry is refused.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.records.batch import Batch, alike

__all__ = [
    "BLOCK_BYTES_MAX",
    "TIMESTAMP_COLUMN",
    "BlockPacker",
    "RecordTooLargeError",
    "batch_bytes",
    "decode_block",
    "encode_block",
]

BLOCK_BYTES_MAX = 1 << 30
"""No block is larger. A row of Spark's shuffle ends at 2 GiB."""

TIMESTAMP_COLUMN = "__timestamp"
_ARROW = b"A"
_PICKLE = b"P"
_SAMPLE = 16
_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)


class RecordTooLargeError(ProgramError):
    """A record is larger than a block can be."""


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


class BlockPacker:
    """Gathers batches into blocks: small ones wait for one another up to a size, so that a block is worth its header.

    A batch that is larger than a block is cut. Of untyped records the size is only known when they are pickled: it is
    told by the last block, at first by some of them, and a block that came out too large is made anew in halves.
    """

    __slots__ = ("_batches", "_bytes", "_bytes_max", "_record_bytes", "_records", "_records_max", "_untyped_max")

    def __init__(self, bytes_max: int, records_max: int, untyped_max: int) -> None:
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
        size = batch_bytes(batch) if batch.typed or not self._record_bytes else len(batch) * self._record_bytes
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
        block, records = encode_block(batches), sum(map(len, batches))
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


def batch_bytes(batch: Batch) -> int:
    """How many bytes the records of a batch take: as columns, or, of untyped ones, about, pickled, by some of them.

    >>> batch_bytes(Batch.of_values(["x" * 1_000] * 100, None)) > 100
    True
    """
    if batch.typed:
        return int(batch.columns().nbytes)
    values = batch.values()
    sample = values if len(values) <= _SAMPLE else values[:: -(-len(values) // _SAMPLE)]
    try:
        return sum(len(pickle.dumps(value, protocol=5)) for value in sample) * len(values) // max(len(sample), 1)
    except Exception:  # what cannot be pickled is told by who has to
        return 0


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

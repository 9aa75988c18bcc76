"""Stages a writer's output as Arrow columns in chunks: memory stays bounded, and each chunk has a checksum.

A sink that converts its records to messages, commands or requests does so in the task, and stages only the result:
publishing it needs neither the type of the stream nor unpickling.

The format of a staged item (JSON, in the manifest):

    {"form": 1, "records": 3, "chunks": [payloads of `staging`]}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.connectors.contracts import Json, WriterContext
from millstream.connectors.refused_rows import accepted_rows
from millstream.connectors.staging import decode_columns, encode_columns, read_staged, stage_bytes
from millstream.errors import StoreDamagedError
from millstream.storage.store import Store

__all__ = ["StagedColumns", "all_staged_columns", "read_numbered_columns", "read_staged_columns"]

FORM = 1
"""The format version of staged items."""

_CHUNK_BYTES_MAX = 32 * 1024 * 1024


class StagedColumns:
    """Buffers the columns of one writer, in order; writes a chunk to the store as soon as it is large."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._batches: list[pa.RecordBatch] = []
        self._batches_bytes = 0
        self._chunks: list[Json] = []
        self._records = 0

    def add(self, columns: pa.RecordBatch) -> None:
        if columns.num_rows == 0:
            return
        self._batches.append(columns)
        self._batches_bytes += columns.nbytes
        self._records += columns.num_rows
        if self._batches_bytes >= _CHUNK_BYTES_MAX:
            self._stage_chunk()

    def stage(self) -> Sequence[Json]:
        """The result of `SinkWriter.stage`: one item, or none without output."""
        if not self._records:
            return ()
        self._stage_chunk()
        return ({"form": FORM, "records": self._records, "chunks": self._chunks},)

    def _stage_chunk(self) -> None:
        if not self._batches:
            return
        records = sum(batch.num_rows for batch in self._batches)
        data = encode_columns(self._batches)
        self._chunks.append(stage_bytes(self._context, data, records, len(self._chunks), ".arrow"))
        self._batches, self._batches_bytes = [], 0


def read_staged_columns(staged: Json, store: Store) -> Iterator[pa.RecordBatch]:
    """A writer's staged output without skipped rows, in order, with one chunk in memory at a time."""
    return (columns for columns, _ in read_numbered_columns(staged, store))


def read_numbered_columns(staged: Json, store: Store) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
    """As `read_staged_columns`, with the number of each row among all staged ones."""
    return accepted_rows(staged, _all_columns(staged, store))


def all_staged_columns(staged: Json, store: Store) -> Iterator[pa.RecordBatch]:
    """All staged rows, including skipped ones; in this format, or in that of `StagedBatches`."""
    if staged.get("form") != "arrow":
        return _all_columns(staged, store)
    return iter(decode_columns(read_staged(staged, store)))


def _all_columns(staged: Json, store: Store) -> Iterator[pa.RecordBatch]:
    if staged.get("form") != FORM:
        raise StoreDamagedError(
            f"Store {store.url}: output is staged in format {staged.get('form')!r}, and this version reads format "
            f"{FORM}. Publish it with the version that staged it."
        )
    for payload in staged["chunks"]:
        yield from decode_columns(read_staged(payload, store))

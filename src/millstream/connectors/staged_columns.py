"""What a writer has for its committer, as Arrow columns in chunks: memory stays bounded, and each chunk has a checksum.

A sink that makes messages, commands or requests of its records does so in the task, where the records are, and stages
only these: to publish them it needs neither the type of the stream nor to unpickle anything.

The form of what is staged (JSON, in the manifest):

    {"form": 1, "records": 3, "chunks": [payloads of `staging`]}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.connectors.contracts import Json, WriterContext
from millstream.connectors.refused_rows import kept_rows
from millstream.connectors.staging import decode_columns, encode_columns, read_staged, stage_bytes
from millstream.errors import StoreDamagedError
from millstream.storage.store import Store

__all__ = ["StagedColumns", "all_staged_columns", "read_numbered_columns", "read_staged_columns"]

FORM = 1
"""The version of what is staged."""

_CHUNK_BYTES_MAX = 32 * 1024 * 1024


class StagedColumns:
    """Gathers the columns of one writer, in order; a chunk goes to the store as soon as it is large."""

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
        """What `SinkWriter.stage` returns: one item, or none when nothing came."""
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
    """What a writer staged and is to be published, in order, a chunk at a time in memory."""
    return (columns for columns, _ in read_numbered_columns(staged, store))


def read_numbered_columns(staged: Json, store: Store) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
    """The same, with the number of each row among all that was staged."""
    return kept_rows(staged, _all_columns(staged, store))


def all_staged_columns(staged: Json, store: Store) -> Iterator[pa.RecordBatch]:
    """All that was staged, also what is left out; in this form, or in that of `StagedBatches`."""
    if staged.get("form") != "arrow":
        return _all_columns(staged, store)
    return iter(decode_columns(read_staged(staged, store)))


def _all_columns(staged: Json, store: Store) -> Iterator[pa.RecordBatch]:
    if staged.get("form") != FORM:
        raise StoreDamagedError(
            f"Store {store.url}: output is staged in form {staged.get('form')!r}, and this version reads form {FORM}. "
            "Publish it with the version that staged it."
        )
    for payload in staged["chunks"]:
        yield from decode_columns(read_staged(payload, store))

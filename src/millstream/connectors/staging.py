"""Stages a writer's output until its manifest is written.

Small output is stored inside the manifest: a file would cost more. Larger output becomes one file
in the job's store, named by its task attempt, so that a losing attempt never overwrites the winner's. A payload has
length and checksum, and reading it verifies both: damaged output is never published.

The format of a payload (JSON, in the manifest):

    {"inline": "<base64>", "bytes": 12, "crc32": 305419896, "records": 3}
    {"file": "staged/print/…", "bytes": 1200000, "crc32": 305419896, "records": 50000}
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Json, WriterContext
from millstream.errors import StoreDamagedError
from millstream.records.batch import Batch
from millstream.records.columns import from_record_batch
from millstream.records.pickling import pickled
from millstream.records.unpickling import unpickled
from millstream.storage.names import staged_name
from millstream.storage.store import Store

__all__ = ["INLINE_BYTES_MAX", "StagedBatches", "read_staged", "read_staged_values", "stage_bytes"]

INLINE_BYTES_MAX = 32 * 1024
"""The most that one task stores in the manifest of one epoch."""


def stage_bytes(context: WriterContext, data: bytes, records: int, part: int = 0, suffix: str = "") -> Json:
    """Make `data` durable until its epoch is published; returns the payload for the manifest."""
    facts = {"bytes": len(data), "crc32": zlib.crc32(data), "records": records}
    if len(data) <= INLINE_BYTES_MAX:
        return {"inline": base64.b64encode(data).decode("ascii"), **facts}
    name = staged_name(context.uid, context.epoch, context.subtask, context.nonce, part, suffix)
    context.store.put(name, data)
    return {"file": name, **facts}


def read_staged(payload: Json, store: Store) -> bytes:
    """The bytes of a payload, verified."""
    if "inline" in payload:
        subject = "output in the manifest"
        try:
            data = base64.b64decode(payload["inline"], validate=True)
        except binascii.Error as error:
            raise StoreDamagedError(f"Store {store.url}: {subject} is not readable ({error}).") from error
    else:
        subject = f"staged file {payload['file']!r}"
        data = store.get(payload["file"])
    if len(data) != payload["bytes"] or zlib.crc32(data) != payload["crc32"]:
        raise StoreDamagedError(
            f"Store {store.url}: {subject} has {len(data)} bytes with checksum {zlib.crc32(data)}, "
            f"expected {payload['bytes']} bytes with checksum {payload['crc32']}. "
            f"It was truncated or changed after it was written; none of it was published. Restore it from a copy."
        )
    return data


class StagedBatches:
    """Records collected for one payload: Arrow IPC if the stream is typed, else one pickle."""

    def __init__(self) -> None:
        self.records = 0
        self._columns: list[pa.RecordBatch] = []
        self._values: list[Any] = []

    def add(self, batch: Batch) -> None:
        if batch.length == 0:
            return
        self.records += batch.length
        if batch.typed:
            self._columns.append(batch.columns())
        else:
            self._values.extend(batch.values())

    def stage(self, context: WriterContext, part: int = 0) -> Json:
        """One payload with everything added so far."""
        data = encode_columns(self._columns) if self._columns else pickled(self._values)
        payload = stage_bytes(context, data, self.records, part, ".arrow" if self._columns else ".pickle")
        return {**payload, "form": "arrow" if self._columns else "pickle"}


def encode_columns(batches: list[pa.RecordBatch]) -> bytes:
    """Record batches as IPC streams, one per run of equal schemas (a batch with row kinds has one more column)."""
    sink = pa.BufferOutputStream()
    at = 0
    while at < len(batches):
        until = at + 1
        while until < len(batches) and batches[until].schema.equals(batches[at].schema):
            until += 1
        with pa.ipc.new_stream(sink, batches[at].schema) as writer:
            for batch in batches[at:until]:
                writer.write_batch(batch)
        at = until
    return bytes(sink.getvalue())


def decode_columns(data: bytes) -> list[pa.RecordBatch]:
    """The inverse of `encode_columns`."""
    source = pa.BufferReader(data)
    batches: list[pa.RecordBatch] = []
    while source.tell() < len(data):
        with pa.ipc.open_stream(source) as reader:
            batches.extend(reader)
    return batches


def read_staged_values(payload: Json, store: Store, type_info: TypeInformation | None) -> list[Any]:
    """The records of a payload made by `StagedBatches`, as Python values."""
    data = read_staged(payload, store)
    if payload["form"] == "pickle":
        values: list[Any] = unpickled(data)
        return values
    assert type_info is not None, "columns were staged, so the stream has a type"
    return [value for batch in decode_columns(data) for value in from_record_batch(batch, type_info, unpickled)]

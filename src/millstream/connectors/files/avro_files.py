"""Avro files: an offset is the byte position of a block, and an epoch reads whole blocks.

A file starts with the schema it was written with; records are read with the schema of the rows, following Avro's
schema resolution. Blocks may use any of Avro's codecs (`avro_blocks`). An error names a file that is incomplete.

Files are written with deflate by default. Blocks of several chunks are combined into one file without
unpacking them.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.avro_blocks import PlainBlocks
from millstream.connectors.files.formats import ByteFormat, opened_bytes
from millstream.connectors.files.parts import PartEncoder, PartFormat
from millstream.connectors.files.places import is_remote
from millstream.connectors.files.unpacking import is_compressed
from millstream.connectors.messages.avro import NO_AVRO, AvroRecords
from millstream.connectors.messages.avro_schemas import AvroSource, fastavro_module
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.errors import JobFailedError, ProgramError, TypeMismatchError
from millstream.records.batch import Batch, is_typed
from millstream.records.columns import from_record_batch, to_record_batch
from millstream.records.unpickling import unpickled

__all__ = ["AvroParts", "AvroRows"]

_CODEC = "deflate"
_RECORD_BYTES = 100


class AvroRows(ByteFormat):
    """The records of Avro files as rows of the schema's type."""

    name = "Avro"
    cuttable = False

    def __init__(self, schema: AvroSource) -> None:
        self._records = AvroRecords(schema)
        self.type_info: TypeInformation = self._records.type_info

    def reach(self, split: Split, offset: Offset, budget: int) -> Offset:
        if self.finished(split, offset):
            return offset
        info = split.info
        stop = offset + max(1, budget) * _record_bytes(info["path"], info["size"], info.get("mark", ""))
        return stop if is_compressed(info["path"]) else min(stop, info["end"])

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        if isinstance(start, dict) or start == stop:
            return start
        path = split.info["path"]
        with opened_bytes(split) as raw:
            file, blocks = self._blocks(raw, path)
            position = max(start, file.position)
            file.seek(position)
            has_ended = False
            while position < stop:
                try:
                    block = next(blocks)
                    rows = [self._records.row(record) for record in block]
                except StopIteration:
                    has_ended = True
                    break
                except fastavro_module().read.SchemaResolutionError as error:
                    raise JobFailedError(
                        f"File {path} was written with a schema that cannot be read as the schema of the rows: "
                        f"{error}. Correct the schema of the source"
                    ) from error
                except NO_AVRO as error:
                    raise _damaged(path, position, error) from error
                position = file.position
                yield self._batch(rows, path)
        return {"end": position} if has_ended and is_compressed(path) else position

    def _blocks(self, raw: BinaryIO, path: str) -> tuple[PlainBlocks, Any]:
        try:
            file = PlainBlocks(raw)
            return file, fastavro_module().block_reader(file, reader_schema=self._records.schema.reading)
        except ProgramError as error:
            raise JobFailedError(
                f"File {path} has an unsupported schema: {error}. Write it with another, or leave it out"
            ) from error
        except NO_AVRO as error:
            raise _damaged(path, 0, error) from error

    def _batch(self, rows: list[Any], path: str) -> Any:
        if not is_typed(self.type_info):
            return rows
        try:
            return to_record_batch(rows, self.type_info)
        except TypeMismatchError as error:
            raise TypeMismatchError(f"{path}: {error.message}", value=error.value, path=error.path) from error


def _damaged(path: str, position: int, error: BaseException) -> JobFailedError:
    reason = str(error) or type(error).__name__
    return JobFailedError(
        f"File {path} is not complete Avro ({reason}, at byte {position} or later). Replace it with a complete copy."
    )


@lru_cache(maxsize=4096)
def _record_bytes(path: str, size: int, mark: str) -> int:
    """Approximate bytes per record, from the first block; only the size of an epoch depends on it."""
    if is_remote(path):
        return _RECORD_BYTES  # inspecting each object would cost a request
    try:
        with opened_bytes(Split(path, 0, {"path": path, "size": size, "mark": mark})) as raw:
            size, records = PlainBlocks(raw).next_sizes() or (_RECORD_BYTES, 1)
            return max(1, size // max(1, records))
    except (JobFailedError, ProgramError, *NO_AVRO):
        return _RECORD_BYTES  # reading the records will report the error


@dataclass(frozen=True)
class AvroParts(PartFormat):
    """Rows as Avro records of the schema, which each file starts with."""

    schema: AvroSource
    codec: str = _CODEC
    suffix = ".avro"

    def encoder(self) -> PartEncoder:
        return _AvroEncoder(self.schema, self.codec)

    def assemble(self, chunks: Sequence[bytes]) -> bytes:
        fastavro = fastavro_module()
        whole = io.BytesIO()
        # The sync marker is derived from the content, so that assembling again produces the same bytes.
        marker = hashlib.md5(chunks[0], usedforsecurity=False).digest()
        writer = fastavro.write.Writer(whole, self.schema.parsed, codec=self.codec, sync_marker=marker)
        for chunk in chunks:
            for block in fastavro.block_reader(io.BytesIO(chunk)):
                writer.write_block(block)
        writer.flush()
        return whole.getvalue()


class _AvroEncoder(PartEncoder):
    def __init__(self, schema: AvroSource, codec: str) -> None:
        self._records = AvroRecords(schema)
        self._file = io.BytesIO()
        self._writer = fastavro_module().write.Writer(self._file, schema.parsed, codec=codec, options={"strict": True})

    def add(self, batch: Batch) -> None:
        type_info = self._records.type_info
        columns = inserted_rows(batch, type_info, "Avro")
        write, record = self._writer.write, self._records.record
        for row in from_record_batch(columns, type_info, unpickled):
            try:
                write(record(row))
            except NO_AVRO as error:
                raise TypeMismatchError(
                    f"{row!r} does not fit the Avro schema: {error}. Make nullable fields a union with null", value=row
                ) from error

    def size_bytes(self) -> int:
        return self._file.tell()

    def finish(self) -> bytes:
        self._writer.flush()
        return self._file.getvalue()

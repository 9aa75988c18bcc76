"""Converts Avro records to rows and back, for messages and for Avro elsewhere.

fastavro reads and writes the bytes; this module converts its values to the schema's row type. fastavro returns
timestamps with the zone UTC and ids as objects; rows have UTC times without a zone, and strings.

`AvroRecords` is the reference, record by record; `AvroDecoder` and `AvroEncoder` are for messages. A message is read
to its end: bytes after its record mean that it was written with another schema, so it is a bad message.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.connectors.messages.avro_columns import avro_columns, has_avro_columns
from millstream.connectors.messages.avro_schemas import AvroSource, fastavro_module, parsed_schema, row_type_of
from millstream.connectors.messages.avro_values import inward, outward
from millstream.connectors.messages.codecs import MessageEncoder
from millstream.connectors.messages.row_decoder import ReadColumns, RowDecoder
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.batch import Batch
from millstream.records.columns import as_declared, from_record_batch
from millstream.records.unpickling import unpickled

__all__ = ["NO_AVRO", "AvroDecoder", "AvroEncoder", "AvroRecords"]

NO_AVRO = (
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    struct.error,
    StopIteration,
    MemoryError,
)
"""The errors that fastavro raises for bytes that are not a record."""


class AvroRecords:
    """Rows of one schema.

    >>> schema = AvroSource('{"type": "record", "name": "Ad", "fields": [{"name": "id", "type": "long"}]}')
    >>> records = AvroRecords(schema)
    >>> records.write((7,)), records.read(records.write((7,)))
    (b'\\x0e', Row(id=7))
    """

    def __init__(self, schema: AvroSource) -> None:
        self.schema = schema
        self.type_info: RowTypeInfo = row_type_of(schema.text)
        parsed_schema(schema.text)

    def row(self, record: Any) -> Any:
        """The fields of a fastavro record, in the order of the row type."""
        return inward(self.schema.text)(record)

    def record(self, row: Any) -> Any:
        """A row as a fastavro record."""
        return outward(self.schema.text)(row)

    def value(self, message: bytes, writer: AvroSource | None = None) -> Any:
        """The content of a message, before its type check. `writer`: the schema it was written with."""
        stream = io.BytesIO(message)
        try:
            if writer is None or writer == self.schema:
                record = fastavro_module().schemaless_reader(stream, self.schema.reading)
            else:
                record = fastavro_module().schemaless_reader(stream, writer.reading, self.schema.reading)
            row = self.row(record)
        except fastavro_module().read.SchemaResolutionError as error:
            raise ValueError(f"its schema cannot be read as the schema of the rows: {error}") from error
        except NO_AVRO as error:
            raise ValueError(f"it is not an Avro record of the schema ({type(error).__name__}: {error})") from error
        if stream.tell() != len(message):
            raise ValueError(f"its record ends after {stream.tell()} of {len(message)} bytes: another schema wrote it")
        return row

    def read(self, message: bytes, writer: AvroSource | None = None) -> Any:
        """The row of a message. Raises ValueError or TypeMismatchError."""
        return as_declared([self.value(message, writer)], self.type_info)[0]

    def write(self, row: Any) -> bytes:
        """The message of a row of the type."""
        return self.encoded(as_declared([row], self.type_info)[0])

    def encoded(self, row: Any) -> bytes:
        """The message of a row whose type was checked."""
        stream = io.BytesIO()
        try:
            fastavro_module().schemaless_writer(stream, self.schema.parsed, self.record(row), strict=True)
        except ProgramError:  # not caused by a row
            raise
        except NO_AVRO as error:
            raise TypeMismatchError(
                f"{row!r} does not fit the Avro schema: {error}. Make nullable fields a union with null", value=row
            ) from error
        return stream.getvalue()


class AvroDecoder(RowDecoder):
    """Decodes rows from messages, each an Avro record."""

    def __init__(self, records: AvroRecords) -> None:
        self._records = records
        self.type_info: TypeInformation = records.type_info
        self.has_columns = has_avro_columns(records.schema.text)

    def columns(self, values: pa.Array) -> ReadColumns | None:
        return avro_columns(values, self._records.schema.text)

    def rows(self, message: bytes) -> Sequence[Any]:
        return (self._records.value(message),)


class AvroEncoder(MessageEncoder):
    """Encodes rows as messages; each starts with `head`."""

    def __init__(self, records: AvroRecords, head: bytes = b"") -> None:
        self._records = records
        self._head = head

    def encode(self, batch: Batch) -> pa.Array:
        type_info = self._records.type_info
        rows = from_record_batch(inserted_rows(batch, type_info, "Avro"), type_info, unpickled)
        head, encoded = self._head, self._records.encoded
        return pa.array([head + encoded(row) for row in rows], pa.binary())

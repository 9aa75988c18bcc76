"""Table formats Avro, Parquet and ORC: their own types are cast to SQL types column by column.

A value outside the table's type is an error, as in every format. Parquet and ORC are for files only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.avro_files import AvroParts, AvroRows
from millstream.connectors.files.formats import FileFormat
from millstream.connectors.files.orc_files import OrcParts, OrcRows
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.files.parts import ParquetParts, PartEncoder, PartFormat
from millstream.connectors.messages.avro import AvroDecoder, AvroEncoder, AvroRecords
from millstream.connectors.messages.avro_schemas import AvroSource
from millstream.connectors.messages.codecs import BadMessage, Decoded, MessageDecoder, MessageEncoder, Messages
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.connectors.tables.factory import TableOption
from millstream.connectors.tables.formats.avro_schema import avro_schema
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat, refuse_types
from millstream.errors import JobFailedError, NotYetError, ProgramError
from millstream.expressions.canonical_types import CANONICAL_TYPES
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.records.batch import Batch
from millstream.records.columns import stream_schema
from millstream.records.table_type import TableRowType

__all__ = ["AvroFormat", "OrcFormat", "ParquetFormat"]

_AVRO_CODECS = ("deflate", "null", "bzip2", "xz", "snappy", "zstandard")
_PARQUET_COMPRESSIONS = ("SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI", "UNCOMPRESSED")


def _is_stored(data_type: DataType) -> bool:
    """Whether stored values can be used as values of the type without a cast."""
    return not isinstance(data_type, CANONICAL_TYPES)


class ParquetFormat(TableFormat):
    """Flink's `parquet`."""

    name = "parquet"
    is_for_messages = False
    options = (
        TableOption("parquet.compression", f"one of {', '.join(_PARQUET_COMPRESSIONS)}", default="SNAPPY"),
        TableOption("parquet.utc-timezone", "accepted as in Flink; it does not change stored times", default="true"),
    )

    def reader(self, options: FormatOptions, row_type: RowType) -> FileFormat:
        options.boolean("parquet.utc-timezone")
        refuse_types(self.name, options.table, row_type, _is_stored)
        return ParquetRows(TableRowType(row_type), emit_dictionaries=True)

    def parts(self, options: FormatOptions, row_type: RowType) -> PartFormat:
        options.boolean("parquet.utc-timezone")
        refuse_types(self.name, options.table, row_type, _is_stored)
        compression = options.choice("parquet.compression", _PARQUET_COMPRESSIONS).lower()
        return ParquetParts(compression="none" if compression == "uncompressed" else compression)


class OrcFormat(TableFormat):
    """Flink's `orc`."""

    name = "orc"
    is_for_messages = False

    def reader(self, options: FormatOptions, row_type: RowType) -> FileFormat:
        refuse_types(self.name, options.table, row_type, _is_stored)
        return OrcRows(TableRowType(row_type))

    def parts(self, options: FormatOptions, row_type: RowType) -> PartFormat:
        refuse_types(self.name, options.table, row_type, _is_stored)
        return OrcParts()


class AvroFormat(TableFormat):
    """Flink's `avro`: files of records with their schema, or messages of one record each without it."""

    name = "avro"
    options = (
        TableOption("avro.codec", f"compression of file blocks: {', '.join(_AVRO_CODECS)}", default="deflate"),
        TableOption("avro.encoding", "binary; json is not built yet", default="binary"),
        TableOption(
            "avro.timestamp_mapping.legacy", "write TIMESTAMP as timestamp, not local-timestamp", default="true"
        ),
    )

    def reader(self, options: FormatOptions, row_type: RowType) -> FileFormat:
        return AvroTableFiles(self._schema(options, row_type), row_type)

    def parts(self, options: FormatOptions, row_type: RowType) -> PartFormat:
        codec = options.choice("avro.codec", _AVRO_CODECS)
        return AvroTableParts(self._schema(options, row_type), row_type, codec)

    def decoder(self, options: FormatOptions, row_type: RowType) -> MessageDecoder:
        return AvroTableDecoder(self._schema(options, row_type), row_type)

    def encoder(self, options: FormatOptions, row_type: RowType) -> MessageEncoder:
        return AvroTableEncoder(self._schema(options, row_type), row_type)

    def _schema(self, options: FormatOptions, row_type: RowType) -> AvroSource:
        if options.choice("avro.encoding", ("binary", "json")) == "json":
            raise NotYetError.of("'avro.encoding' = 'json'", "other encodings of Avro", "omit it")
        try:
            return AvroSource(json.dumps(avro_schema(row_type, options.boolean("avro.timestamp_mapping.legacy"))))
        except ProgramError as error:
            raise ProgramError(f"table {options.table!r}: {error.message}") from None


class AvroTableFiles(AvroRows):
    """Reads rows from Avro files."""

    def __init__(self, schema: AvroSource, row_type: RowType) -> None:
        super().__init__(schema)
        self._record_type, self._row_type = self.type_info, row_type
        self.type_info: TypeInformation = TableRowType(row_type)

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        rows = super().read(split, start, stop)
        while True:
            try:
                batch = next(rows)
            except StopIteration as end:
                return end.value
            try:
                yield as_table(batch, self._row_type)
            except pa.ArrowInvalid as error:
                raise JobFailedError(
                    f"File {split.info['path']}: a value does not fit the table ({error}). Correct the declared type"
                ) from error

    def _batch(self, rows: list[Any], path: str) -> Any:
        table_type, self.type_info = self.type_info, self._record_type
        try:
            return super()._batch(rows, path)
        finally:
            self.type_info = table_type


class AvroTableDecoder(MessageDecoder):
    """Decodes rows from messages."""

    def __init__(self, schema: AvroSource, row_type: RowType) -> None:
        self._decoder, self._row_type = AvroDecoder(AvroRecords(schema)), row_type
        self.type_info: TypeInformation = TableRowType(row_type)

    def decode(self, messages: Messages) -> Decoded:
        read = self._decoder.decode(messages)
        columns = read.batch.columns()
        try:
            return Decoded(
                Batch.of_columns(as_table(columns, self._row_type), TableRowType(self._row_type)),
                read.origins,
                read.bad,
            )
        except pa.ArrowInvalid:
            return self._one_by_one(columns, read)

    def _one_by_one(self, columns: pa.RecordBatch, read: Decoded) -> Decoded:
        """The rows that fit the table; the others are bad messages."""
        whose = np.arange(columns.num_rows) if read.origins is None else read.origins
        good: list[pa.RecordBatch] = []
        valid: list[int] = []
        bad = list(read.bad)
        for at in range(columns.num_rows):
            try:
                good.append(as_table(columns.slice(at, 1), self._row_type))
                valid.append(int(whose[at]))
            except pa.ArrowInvalid as error:
                bad.append(BadMessage.of(int(whose[at]), error))
        empty = self._row_type.schema.empty_table()
        [batch] = pa.Table.from_batches(good, self._row_type.schema).combine_chunks().to_batches() or [
            pa.RecordBatch.from_arrays([pa.array([], field.type) for field in empty.schema], schema=empty.schema)
        ]
        bad.sort(key=lambda each: each.index)
        return Decoded(Batch.of_columns(batch, TableRowType(self._row_type)), np.array(valid, np.int64), tuple(bad))


class AvroTableEncoder(MessageEncoder):
    """Encodes rows as messages."""

    def __init__(self, schema: AvroSource, row_type: RowType) -> None:
        self._records, self._row_type = AvroRecords(schema), row_type
        self._encoder = AvroEncoder(self._records)

    def encode(self, batch: Batch) -> pa.Array:
        return self._encoder.encode(_as_records(batch, self._row_type, self._records.type_info))


class AvroTableParts(AvroParts):
    """Files of rows."""

    def __init__(self, schema: AvroSource, row_type: RowType, codec: str) -> None:
        super().__init__(schema, codec)
        object.__setattr__(self, "row_type", row_type)

    def encoder(self) -> PartEncoder:
        return _AvroTableEncoder(super().encoder(), self.row_type, self.schema.row_type)  # type: ignore[attr-defined]

    def assemble(self, chunks: Sequence[bytes]) -> bytes:
        return super().assemble(chunks)


class _AvroTableEncoder(PartEncoder):
    def __init__(self, inner: PartEncoder, row_type: RowType, record_type: TypeInformation) -> None:
        self._inner, self._row_type, self._record_type = inner, row_type, record_type

    def add(self, batch: Batch) -> None:
        self._inner.add(_as_records(batch, self._row_type, self._record_type))

    def size_bytes(self) -> int:
        return self._inner.size_bytes()

    def finish(self) -> bytes:
        return self._inner.finish()


def as_table(batch: pa.RecordBatch, row_type: RowType) -> pa.RecordBatch:
    """Converts a batch of a format's own types to the table's. Raises ArrowInvalid."""
    columns = []
    for column, field in zip(batch.columns, row_type.fields, strict=False):
        if column.null_count and not field.data_type.is_nullable:
            raise pa.ArrowInvalid(f"column {field.name!r} is NOT NULL, and found NULL")
        columns.append(_cast(column, field.data_type))
    return pa.RecordBatch.from_arrays(columns, schema=row_type.schema)


def _as_records(batch: Batch, row_type: RowType, record_type: TypeInformation) -> Batch:
    columns = inserted_rows(batch, TableRowType(row_type), "Avro")
    schema = stream_schema(record_type)
    assert schema is not None
    pairs = zip(columns.columns, schema, row_type.fields, strict=True)
    cast = [_cast_to(column, field.type, of.data_type) for column, field, of in pairs]
    return Batch.of_columns(pa.RecordBatch.from_arrays(cast, schema=schema), record_type)


def _cast(column: pa.Array, data_type: DataType) -> pa.Array:
    return _cast_to(column, data_type.arrow, data_type)


def _cast_to(column: pa.Array, target: pa.DataType, data_type: DataType) -> pa.Array:
    """The column as another Arrow type of the same SQL type."""
    if column.type.equals(target):
        return column
    if isinstance(data_type, RowType):
        parts = [_cast_to(column.field(at), target.field(at).type, each) for at, each in enumerate(data_type.types)]
        nulls = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, type=target, mask=nulls)
    if isinstance(data_type, ArrayType):
        items = _cast_to(column.flatten(), target.value_type, data_type.element_type)
        nulls = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(_offsets(column), items, type=target, mask=nulls)
    if isinstance(data_type, (MapType, MultisetType)):
        entries = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
        pairs = entries.flatten()
        value_type = data_type.value_type if isinstance(data_type, MapType) else None
        items = pairs.field(1)
        items = items.cast(target.item_type) if value_type is None else _cast_to(items, target.item_type, value_type)
        nulls = column.is_null() if column.null_count else None
        keys = pairs.field(0).cast(target.key_type)
        maps = pa.MapArray.from_arrays(_offsets(entries), keys, items, mask=nulls)
        return maps if maps.type.equals(target) else maps.cast(target)
    return column.cast(target)


def _offsets(lists: pa.Array) -> pa.Array:
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(lists), 0)), out=offsets[1:])
    return pa.array(offsets)
